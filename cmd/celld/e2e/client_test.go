package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// patience bounds everything that a test waits for.
const patience = 60 * time.Second

// caller is somebody who sends requests to one server.
type caller struct {
	http  *http.Client
	base  string
	name  string
	token string // "" for somebody without credentials
}

// request is one request. What is not set is not sent.
type request struct {
	method  string
	path    string // as it stands on the request line, query included
	header  http.Header
	key     string // Idempotency-Key
	ifMatch string
	body    any    // sent as JSON; a string or []byte is sent as it is
	stream  bool   // send the body without saying its length
	noType  bool   // leave Content-Type out
	from    string // another base URL than the caller's
}

// answer is what came back.
type answer struct {
	request request
	status  int
	header  http.Header
	body    []byte
}

func (c caller) get(t testing.TB, path string) answer {
	t.Helper()
	return c.do(t, request{method: http.MethodGet, path: path})
}

func (c caller) post(t testing.TB, path string, body any) answer {
	t.Helper()
	return c.do(t, request{method: http.MethodPost, path: path, body: body})
}

func (c caller) put(t testing.TB, path string, version int64, body any) answer {
	t.Helper()
	return c.do(t, request{method: http.MethodPut, path: path, ifMatch: etag(version), body: body})
}

func (c caller) delete(t testing.TB, path string) answer {
	t.Helper()
	return c.do(t, request{method: http.MethodDelete, path: path})
}

// at is the same caller at another server.
func (c caller) at(base string) caller {
	c.base = base
	return c
}

// do sends one request and fails the test where no answer comes.
func (c caller) do(t testing.TB, r request) answer {
	t.Helper()
	got, err := c.try(context.Background(), r)
	if err != nil {
		t.Fatalf("%s %s as %s: %v", r.method, r.path, c.name, err)
	}
	return got
}

// try is do for whoever expects that no answer may come.
func (c caller) try(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := c.build(ctx, r)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	return answer{request: r, status: resp.StatusCode, header: resp.Header, body: body}, err
}

func (c caller) build(ctx context.Context, r request) (*http.Request, error) {
	base := c.base
	if r.from != "" {
		base = r.from
	}
	var reader io.Reader
	if r.body != nil {
		raw, err := encoded(r.body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(raw)
		if r.stream {
			reader = io.MultiReader(reader) // hides the length
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base, reader)
	if err != nil {
		return nil, err
	}
	// The path goes out byte for byte, odd ones too.
	if u, err := url.Parse(base + r.path); err == nil && u.RequestURI() == r.path {
		req.URL = u
	} else {
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: r.path}
	}
	if r.body != nil && !r.noType {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.ifMatch != "" {
		req.Header.Set("If-Match", r.ifMatch)
	}
	for name, values := range r.header {
		req.Header[name] = append(req.Header[name], values...)
		if name == "Content-Type" {
			req.Header[name] = values
		}
	}
	return req, nil
}

func encoded(body any) ([]byte, error) {
	switch b := body.(type) {
	case string:
		return []byte(b), nil
	case []byte:
		return b, nil
	}
	return json.Marshal(body)
}

// want fails the test unless the answer has the status.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s %s answered %d, want %d: %s", a.request.method, a.request.path, a.status, status, a.body)
	}
	return a
}

// refused fails the test unless the answer is the problem of that status and type.
func (a answer) refused(t testing.TB, status int, slug string) answer {
	t.Helper()
	a.want(t, status)
	if got := a.object(t)["type"]; got != slug {
		t.Fatalf("%s %s answered the problem %v, want %s: %s", a.request.method, a.request.path, got, slug, a.body)
	}
	return a
}

// into decodes the answer's body.
func (a answer) into(t testing.TB, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s %s answered %d with a body that is not JSON: %v: %q", a.request.method, a.request.path, a.status, err, a.body)
	}
}

// object is the answer's body as a JSON object.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var all map[string]any
	a.into(t, &all)
	return all
}

// text is a member of the answer's object.
func (a answer) text(t testing.TB, member string) string {
	t.Helper()
	s, ok := a.object(t)[member].(string)
	if !ok {
		t.Fatalf("%s %s: no text %q in %s", a.request.method, a.request.path, member, a.body)
	}
	return s
}

// number is a member of the answer's object.
func (a answer) number(t testing.TB, member string) int64 {
	t.Helper()
	n, ok := a.object(t)[member].(json.Number)
	if !ok {
		t.Fatalf("%s %s: no number %q in %s", a.request.method, a.request.path, member, a.body)
	}
	i, err := n.Int64()
	if err != nil {
		t.Fatalf("%s %s: %q is no whole number: %s", a.request.method, a.request.path, member, a.body)
	}
	return i
}

// eventually asks again and again until it is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for !so() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
