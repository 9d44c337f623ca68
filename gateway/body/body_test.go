package body

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"celld/store/fault"
)

type inner struct {
	CostMinor *int64  `json:"costMinor,omitempty"`
	Note      *string `json:"note"`
}

type common struct {
	Memo string `json:"memo"`
}

type document struct {
	common
	Name     string            `json:"name"`
	Amount   int64             `json:"amountMinor"`
	ID       uint64            `json:"customerId"`
	Flag     bool              `json:"flag"`
	Internal *inner            `json:"internal"`
	Items    []inner           `json:"items"`
	Labels   map[string]inner  `json:"labels"`
	Any      any               `json:"any"`
	When     time.Time         `json:"when"`
	Own      ruled             `json:"own"`
	Filters  map[string]string `json:"filters"`
	Hidden   string            `json:"-"`
	hidden   string
}

// ruled reads itself and has a rule.
type ruled string

func (r *ruled) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"bad"` {
		return fault.New(fault.Impossible, "bad-own", "no")
	}
	return json.Unmarshal(raw, (*string)(r))
}

func TestDecode(t *testing.T) {
	deep := strings.Repeat(`[`, 14) + strings.Repeat(`]`, 14)
	many := `{"filters":{` + strings.Repeat(`"a":"",`, 2) + `"b":""}}`
	for _, c := range []struct {
		raw  string
		slug string // "" is accepted
	}{
		{`{}`, ""},
		{" \t\r\n{ \"name\" : \"a\" , \"amountMinor\" : -5 } \n", ""},
		{`{"name":"é\u00e9\ud83d\ude00😀","memo":"x","internal":{"costMinor":1,"note":"n"},"items":[{"note":"a"},{}],"labels":{"x":{"note":"y"}}}`, ""},
		{`{"any":{"x":[1,{"y":true}]},"when":"2026-01-02T03:04:05Z","own":"ok","flag":false,"filters":{"X":"1","x":"2"}}`, ""},
		{`{"na\u006de":"escaped name"}`, ""},
		{`{"any":` + deep + `}`, ""},
		{``, "malformed-json"},
		{`   `, "malformed-json"}, {`[]`, "malformed-json"}, {`"a"`, "malformed-json"}, {`5`, "malformed-json"}, {`null`, "malformed-json"},
		{`{`, "malformed-json"}, {`{"name"`, "malformed-json"}, {`{"name":`, "malformed-json"}, {`{"name":"a"`, "malformed-json"}, {`{"name":"a",}`, "malformed-json"},
		{`{name:"a"}`, "malformed-json"}, {`{"name":"a}`, "malformed-json"}, {`{"items":[}`, "malformed-json"}, {`{"items":[{}`, "malformed-json"},
		{`{"name":"\x"}`, "malformed-json"}, {`{"na\qme":1}`, "malformed-json"}, {`{"name":"\u12"}`, "malformed-json"}, {`{"name":"\u00zz"}`, "malformed-json"}, {`{"name":'a'}`, "malformed-json"},
		{"{\"name\":\"a\x00b\"}", "malformed-json"}, {"{\"name\":\"a\nb\"}", "malformed-json"}, {"\xef\xbb\xbf{}", "malformed-json"},
		{`{"amountMinor":01}`, "malformed-json"}, {`{"amountMinor":+1}`, "malformed-json"}, {`{"amountMinor":1.}`, "malformed-json"}, {`{"amountMinor":NaN}`, "malformed-json"}, {`{"flag":True}`, "malformed-json"},
		{`{"when":"yesterday"}`, "malformed-json"},
		{`{} {}`, "malformed-json"}, {`{}x`, "malformed-json"}, {"{}\x00", "malformed-json"},
		{`{"nope":1}`, "unknown-field"}, {`{"Name":"a"}`, "unknown-field"}, {`{"NAME":"a"}`, "unknown-field"}, {`{"internal":{"costminor":1}}`, "unknown-field"},
		{`{"items":[{"Note":"a"}]}`, "unknown-field"}, {`{"labels":{"x":{"no":1}}}`, "unknown-field"}, {`{"Hidden":"a"}`, "unknown-field"}, {`{"hidden":"a"}`, "unknown-field"}, {`{"-":"a"}`, "unknown-field"}, {`{"common":{}}`, "unknown-field"},
		{`{"` + strings.Repeat("é", 500) + `":1}`, "unknown-field"},
		{`{"name":"a","name":"b"}`, "invalid-field"}, {`{"name":"a","n\u0061me":"a"}`, "invalid-field"}, {`{"internal":{"note":"a","note":"b"}}`, "invalid-field"},
		{`{"any":{"a":1,"a":2}}`, "invalid-field"}, {many, "invalid-field"}, {`{"memo":"a","memo":"b"}`, "invalid-field"},
		{`{"name":null}`, "invalid-field"}, {`{"internal":null}`, "invalid-field"}, {`{"any":[null]}`, "invalid-field"},
		{`{"name":5}`, "invalid-field"}, {`{"name":{}}`, "invalid-field"}, {`{"name":[]}`, "invalid-field"}, {`{"amountMinor":"5"}`, "invalid-field"}, {`{"amountMinor":1.5}`, "invalid-field"}, {`{"amountMinor":1e3}`, "invalid-field"},
		{`{"amountMinor":1e999}`, "invalid-field"}, {`{"amountMinor":true}`, "invalid-field"}, {`{"flag":0}`, "invalid-field"}, {`{"internal":[]}`, "invalid-field"}, {`{"items":{}}`, "invalid-field"}, {`{"labels":[]}`, "invalid-field"}, {`[{}]`, "malformed-json"},
		{`{"amountMinor":9223372036854775808}`, "number-out-of-range"}, {`{"amountMinor":` + strings.Repeat("9", 5000) + `}`, "number-out-of-range"}, {`{"customerId":-1}`, "number-out-of-range"},
		{"{\"name\":\"\xff\"}", "malformed-json"}, {"{\"name\":\"\xed\xa0\x80\"}", "malformed-json"}, {"{\"\xff\":1}", "malformed-json"}, {"{\"any\":{\"\xff\":1}}", "malformed-json"},
		{`{"name":"\ud800"}`, "malformed-json"}, {`{"name":"\ud800x"}`, "malformed-json"}, {`{"name":"\ud800\n"}`, "malformed-json"}, {`{"name":"\udc00"}`, "malformed-json"}, {`{"name":"\ud800\ud800"}`, "malformed-json"},
		{`{"any":[[` + deep + `]]}`, "malformed-json"}, {`{"any":` + strings.Repeat(`{"a":`, 100000), "malformed-json"},
		{`{"own":"bad"}`, "bad-own"},
	} {
		var d document
		err := Decode([]byte(c.raw), &d)
		e := fault.As(err)
		switch {
		case c.slug == "" && err != nil:
			t.Errorf("%.80q: %v", c.raw, err)
		case c.slug != "" && (err == nil || e.Slug != c.slug):
			t.Errorf("%.80q: got %v, want %s", c.raw, err, c.slug)
		case err != nil && e.Kind != fault.Invalid && e.Kind != fault.Impossible:
			t.Errorf("%.80q: kind %s", c.raw, e.Kind)
		case err != nil && (!utf8.ValidString(e.Detail) || len(e.Detail) > 600):
			t.Errorf("%.80q: detail %q", c.raw, e.Detail)
		}
	}
	var d document
	if err := Decode([]byte(`{"name":"\u00e9\ud83d\ude00","memo":"m","internal":{"costMinor":3}}`), &d); err != nil || d.Name != "é😀" || d.Memo != "m" || d.hidden != "" || *d.Internal.CostMinor != 3 {
		t.Errorf("read %+v, %v", d, err)
	}
	if err := Decode([]byte(`{}`), d); err == nil || fault.Of(err) != fault.Internal {
		t.Errorf("not a pointer: %v", err)
	}
}

func TestRead(t *testing.T) {
	const limit = 100
	fits, over := strings.Repeat("a", limit), strings.Repeat("a", limit+1)
	for _, c := range []struct {
		name, contentType, encoding, content string
		chunked                              bool
		kind                                 fault.Kind // Internal stands for none
	}{
		{"plain", "application/json", "", fits, false, 0},
		{"chunked", "application/json", "", fits, true, 0},
		{"charset", "application/json; charset=UTF-8", "identity", fits, false, 0},
		{"spelling", "Application/JSON", "", fits, false, 0},
		{"empty", "", "", "", false, 0},
		{"too long", "application/json", "", over, false, fault.TooLarge},
		{"too long in chunks", "application/json", "", over, true, fault.TooLarge},
		{"no type", "", "", fits, false, fault.MediaType},
		{"form", "application/x-www-form-urlencoded", "", fits, false, fault.MediaType},
		{"similar type", "application/json5", "", fits, false, fault.MediaType},
		{"other charset", "application/json; charset=latin1", "", fits, false, fault.MediaType},
		{"other parameter", "application/json; version=2", "", fits, false, fault.MediaType},
		{"broken type", "application/json; ;", "", fits, false, fault.MediaType},
		{"compressed", "application/json", "gzip", fits, false, fault.MediaType},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.content))
			if c.chunked {
				r.ContentLength = -1
			}
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			if c.encoding != "" {
				r.Header.Set("Content-Encoding", c.encoding)
			}
			raw, err := Read(httptest.NewRecorder(), r, limit)
			if c.kind == 0 {
				if err != nil || string(raw) != c.content {
					t.Fatalf("%q, %v", raw, err)
				}
			} else if fault.Of(err) != c.kind {
				t.Fatalf("%v", err)
			}
		})
	}
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), failing{}))
	r.Header.Set("Content-Type", "application/json")
	for _, length := range []int64{-1, 50} {
		r.ContentLength = length
		if _, err := Read(httptest.NewRecorder(), r, limit); fault.Of(err) != fault.Invalid {
			t.Errorf("broken body: %v", err)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestText(t *testing.T) {
	for s, ok := range map[string]bool{
		"": true, "a\tb\r\nc": true, "Łódź 😀": true, "0123456789": true, "01234567890": false, "a\x00": false, "a\x1f": false, "a\x7f": false,
		"é\x00": false, "\u0085": false, "\u009f": false, "\xff": false, "é\xc3": false, "\xed\xa0\x80": false,
	} {
		if err := Text("name", s, 12); (err == nil) != ok && s != "01234567890" {
			t.Errorf("%q: %v", s, err)
		} else if err != nil && fault.Of(err) != fault.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
	if Text("name", "01234567890", 10) == nil || Text("name", "0123456789", 10) != nil {
		t.Error("the bound is not at 10 bytes")
	}
}

func TestQuery(t *testing.T) {
	for _, c := range []struct {
		query string
		slug  string
	}{
		{"", ""}, {"limit=1", ""}, {"limit=500&sort=-id&after=2026-01-01T00:00:00Z&cursor=abc", ""}, {"cursor=a%20b", ""}, {"after=2026-01-01T01:00:00%2B01:00", ""},
		{"limit=0", "invalid-query"}, {"limit=501", "invalid-query"}, {"limit=", "invalid-query"}, {"limit", "invalid-query"}, {"limit=05", "invalid-query"}, {"limit=%2B5", "invalid-query"},
		{"limit=-1", "invalid-query"}, {"limit=1e2", "invalid-query"}, {"limit=99999999999999999999", "invalid-query"}, {"limit=%205", "invalid-query"},
		{"limit=1&limit=1", "invalid-query"}, {"sort=ID", "invalid-query"}, {"after=yesterday", "invalid-query"}, {"after=2026-01-01T00:00:00", "invalid-query"},
		{"cursor=", "invalid-query"}, {"cursor=%ff", "invalid-query"}, {"cursor=%00", "invalid-query"}, {"cursor=" + strings.Repeat("a", 33), "invalid-query"},
		{"nope=1", "invalid-query"}, {"Limit=1", "invalid-query"}, {"=1", "invalid-query"}, {"%ff=1", "invalid-query"},
		{"limit=%zz", "invalid-query"}, {"a;b", "invalid-query"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = c.query
		q := NewQuery(r)
		limit := q.Uint("limit", 1, 500, 50)
		q.OneOf("sort", "id", "id", "-id")
		at, given := q.Time("after")
		q.Text("cursor", 32)
		err := q.Done()
		if c.slug == "" && err != nil || c.slug != "" && (err == nil || fault.As(err).Slug != c.slug || fault.Of(err) != fault.Invalid) {
			t.Errorf("%q: got %v, want %q", c.query, err, c.slug)
		}
		if c.query == "" && (limit != 50 || given || !at.IsZero()) {
			t.Errorf("defaults: %d %t", limit, given)
		}
	}
}

// FuzzDecode: what is accepted is valid JSON and valid UTF-8, means the same when
// written and read again, and nothing panics.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"name":"a","amountMinor":5}`, `{"internal":{"note":"\ud83d\ude00"}}`, `{"any":[{"a":1e5}]}`, `{"labels":{"k":{}}}`, "{\"name\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d document
		err := Decode(raw, &d)
		if err != nil {
			if k := fault.Of(err); k != fault.Invalid && k != fault.Impossible {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if !json.Valid(raw) || !utf8.Valid(raw) {
			t.Fatalf("accepted %q", raw)
		}
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		var again document
		if err := strict.Decode(&again); err != nil {
			t.Fatalf("%q: encoding/json says %v", raw, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	raw := []byte(`{"name":"Some Customer","amountMinor":12345,"customerId":17,"memo":"hello world","internal":{"costMinor":5,"note":"n"}}`)
	b.ReportAllocs()
	for b.Loop() {
		var d document
		if err := Decode(raw, &d); err != nil {
			b.Fatal(err)
		}
	}
}
