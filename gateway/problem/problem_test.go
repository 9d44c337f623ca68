package problem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"celld/store/fault"
)

func write(t *testing.T, err error) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r = r.WithContext(ContextWithRequestID(r.Context(), "R1"))
	Write(w, r, err)
	return w.Result()
}

func TestEveryKindKeepsItsKind(t *testing.T) {
	if len(lines) != len(fault.Kinds()) {
		t.Fatalf("%d lines for %d kinds", len(lines), len(fault.Kinds()))
	}
	for _, kind := range fault.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			if l := lineOf(kind); l.kind != kind || l.title == "" || http.StatusText(l.status) == "" {
				t.Fatalf("line %+v", l)
			}
			in := fault.New(kind, "some-slug", "some detail").With("currentVersion", 5).Because(errors.New("secret cause"))
			resp := write(t, in)
			if resp.StatusCode != Status(kind) || resp.Header.Get("Content-Type") != ContentType {
				t.Fatalf("status %d, content type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
			}
			out := fault.As(Read(resp))
			if out.Kind != kind {
				t.Fatalf("read back as %s", out.Kind)
			}
			if got := out.Fields["requestId"]; got != "R1" {
				t.Fatalf("request id %v", got)
			}
			switch kind {
			case fault.Internal:
				if out.Slug != "internal" || out.Fields["currentVersion"] != nil {
					t.Fatalf("told %+v", out)
				}
			case fault.NotFound:
				if out.Slug != "not-found" || out.Detail != "" || len(out.Fields) != 1 {
					t.Fatalf("told %+v", out)
				}
			default:
				if !errors.Is(out, in) || out.Detail != "some detail" || out.Fields["currentVersion"] != json.Number("5") {
					t.Fatalf("read back %+v", out)
				}
			}
			if strings.Contains(out.Error(), "secret") {
				t.Fatal("the cause was told")
			}
		})
	}
}

func TestBytes(t *testing.T) {
	cases := []struct {
		err  error
		want string
	}{
		{fault.Unknown(), `{"type":"not-found","title":"Not found","status":404,"requestId":"R1"}`},
		{fault.New(fault.NotFound, "no-such-invoice", "invoice 17 of T8").With("id", 17), `{"type":"not-found","title":"Not found","status":404,"requestId":"R1"}`},
		{errors.New("disk on fire"), `{"type":"internal","title":"Internal error","status":500,"detail":"the server failed; its log has more under this request id","requestId":"R1"}`},
		{nil, `{"type":"internal","title":"Internal error","status":500,"detail":"the server failed; its log has more under this request id","requestId":"R1"}`},
		{fmt.Errorf("wrapped: %w", fault.New(fault.Precondition, "version-mismatch", "stale").With("currentVersion", 5).With("a", "x").With("status", 1).With("requestId", "other")),
			`{"type":"version-mismatch","title":"Precondition failed","status":412,"detail":"stale","requestId":"R1","a":"x","currentVersion":5}`},
		{(&fault.Error{Kind: fault.Quota}).With("f", func() {}), `{"type":"quota","title":"Over a limit","status":429,"requestId":"R1","f":null}`},
	}
	for _, c := range cases {
		var b bytes.Buffer
		if _, err := b.ReadFrom(write(t, c.err).Body); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != c.want+"\n" {
			t.Errorf("got  %swant %s", got, c.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	cases := []struct {
		err   *fault.Error
		want  string
		again time.Duration
	}{
		{fault.New(fault.Unavailable, "busy", ""), "1", time.Second},
		{fault.New(fault.Unavailable, "busy", "").After(1500 * time.Millisecond), "2", 2 * time.Second},
		{fault.New(fault.Moved, "placement-changed", "").After(time.Second), "1", time.Second},
		{fault.New(fault.Quota, "limit", "").After(time.Minute), "60", time.Minute},
		{fault.New(fault.Conflict, "reference-taken", ""), "", 0},
	}
	for _, c := range cases {
		resp := write(t, c.err)
		if got := resp.Header.Get("Retry-After"); got != c.want {
			t.Errorf("%s: Retry-After %q, want %q", c.err, got, c.want)
		}
		if got := fault.As(Read(resp)).Retry; got != c.again {
			t.Errorf("%s: read %s", c.err, got)
		}
	}
}

func TestReadOfSomethingElse(t *testing.T) {
	answer := func(status int, contentType, body string) error {
		return Parse(status, http.Header{"Content-Type": {contentType}}, []byte(body))
	}
	cases := []struct {
		name string
		err  error
		kind fault.Kind
		slug string
	}{
		{"a proxy's page", answer(502, "text/html", "<html>"), fault.Unavailable, "unexpected-answer"},
		{"an unknown status", answer(418, "text/plain", ""), fault.Internal, "unexpected-answer"},
		{"half a problem", answer(409, ContentType, `{"type":"x"`), fault.Conflict, "unexpected-answer"},
		{"two problems", answer(409, ContentType, `{"type":"x"}{}`), fault.Conflict, "unexpected-answer"},
		{"odd members", answer(409, ContentType, `{"type":7,"detail":[]}`), fault.Conflict, ""},
	}
	for _, c := range cases {
		if e := fault.As(c.err); e.Kind != c.kind || e.Slug != c.slug {
			t.Errorf("%s: %s %q", c.name, e.Kind, e.Slug)
		}
	}
	if err := answer(204, "", ""); err != nil {
		t.Errorf("204 is %v", err)
	}
}

func TestRequestID(t *testing.T) {
	long := strings.Repeat("a", maxRequestID)
	for _, c := range []struct {
		given []string
		kept  bool
	}{
		{nil, false}, {[]string{""}, false}, {[]string{"abc.DEF_1-2"}, true}, {[]string{long}, true}, {[]string{long + "a"}, false},
		{[]string{"a b"}, false}, {[]string{"a\nb"}, false}, {[]string{"é"}, false}, {[]string{`a"b`}, false}, {[]string{"a", "b"}, false},
	} {
		var seen string
		h := WithRequestID(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = RequestID(r.Context()) }))
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		if c.given != nil {
			r.Header[HeaderRequestID] = c.given
		}
		h.ServeHTTP(w, r)
		if seen == "" || w.Header().Get(HeaderRequestID) != seen || (len(c.given) > 0 && seen == c.given[0]) != c.kept {
			t.Errorf("given %q, seen %q, answered %q", c.given, seen, w.Header())
		}
	}
	if RequestID(t.Context()) != "" {
		t.Error("a bare context has an id")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(503, `{"type":"busy","detail":"x","n":1e999}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		err := Parse(status, http.Header{"Content-Type": {ContentType}}, []byte(body))
		if (err == nil) != (status < 400) {
			t.Fatalf("status %d: %v", status, err)
		}
		if err != nil {
			w := httptest.NewRecorder()
			Write(w, httptest.NewRequest(http.MethodGet, "/", nil), err)
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("wrote %q", w.Body)
			}
		}
	})
}
