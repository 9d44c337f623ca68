package openapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// maxViolations bounds what is kept; further ones are counted.
const maxViolations = 50

// Checker compares traffic with one document. Its methods may be called from any
// goroutine.
type Checker struct {
	router routers.Router

	mu         sync.Mutex
	violations []string
	dropped    int
	seen       map[string]int // by "operation status"
}

// Load reads and validates a document.
func Load(document []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("the document is not valid: %w", err)
	}
	return doc, nil
}

// New makes a checker for a document.
func New(document []byte) (*Checker, error) {
	doc, err := Load(document)
	if err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("route by the document: %w", err)
	}
	return &Checker{router: router, seen: make(map[string]int)}, nil
}

// Transport returns a transport that sends through next and checks what comes
// back.
func (c *Checker) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := keepBody(r)
		if err != nil {
			return nil, err
		}
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		raw, err := io.ReadAll(resp.Body)
		if closing := resp.Body.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(raw))
		if err := c.check(r, body, resp, raw); err != nil {
			c.violated(fmt.Sprintf("%s %s -> %d: %v", r.Method, shorten(r.URL.RequestURI()), resp.StatusCode, err))
		}
		return resp, nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// keepBody reads the request's body and puts it back.
func keepBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	raw, err := io.ReadAll(r.Body)
	if closing := r.Body.Close(); err == nil {
		err = closing
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return raw, err
}

func (c *Checker) check(r *http.Request, body []byte, resp *http.Response, raw []byte) error {
	// A request of our own for the document's sake: the sent one is not touched.
	asked := r.Clone(context.WithoutCancel(r.Context()))
	asked.Body = io.NopCloser(bytes.NewReader(body))
	asked.URL.Scheme, asked.URL.Host, asked.URL.RawPath = "", "", "" // one spelling of each path
	for name, values := range asked.Header {
		for i, v := range values {
			asked.Header[name][i] = strings.TrimSpace(v) // as it arrives
		}
	}
	route, params, err := c.router.FindRoute(asked)
	if err != nil {
		return offTheMap(resp, raw)
	}
	c.count(route.Operation.OperationID, resp.StatusCode)
	in := &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route, Options: &openapi3filter.Options{
		IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true, MultiError: true}}
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
		if err := offTheMap(resp, raw); err != nil {
			return err
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(raw)), Options: in.Options}
	if err := openapi3filter.ValidateResponse(asked.Context(), out); err != nil {
		return fmt.Errorf("the answer: %s", firstLines(err))
	}
	if resp.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(asked.Context(), in); err != nil {
			return fmt.Errorf("the request was accepted, and by the document it is wrong: %s", firstLines(err))
		}
	}
	return nil
}

// offTheMap checks an answer to what the document does not have.
func offTheMap(resp *http.Response, raw []byte) error {
	var p struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		RequestID string `json:"requestId"`
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge, http.StatusServiceUnavailable:
	default:
		return errors.New("the document has no such path and method")
	}
	if resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil // no body to look at
	}
	if t := resp.Header.Get("Content-Type"); t != "application/problem+json" {
		return fmt.Errorf("content type %q is not a problem's", t)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("not a problem: %w", err)
	}
	switch {
	case p.Type == "" || p.Title == "" || p.Status != resp.StatusCode:
		return fmt.Errorf("an incomplete problem: %s", shorten(string(raw)))
	case p.RequestID == "" || p.RequestID != resp.Header.Get("X-Request-Id"):
		return errors.New("requestId and X-Request-Id differ")
	case p.Status == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "":
		return errors.New("405 without Allow")
	}
	return nil
}

func (c *Checker) violated(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.violations, text) {
		return
	}
	if len(c.violations) == maxViolations {
		c.dropped++
		return
	}
	c.violations = append(c.violations, text)
}

func (c *Checker) count(operation string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[operation+" "+strconv.Itoa(status)]++
}

// Violations returns what did not agree with the document, and forgets it.
func (c *Checker) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.violations
	if c.dropped > 0 {
		out = append(out, fmt.Sprintf("and %d more", c.dropped))
	}
	c.violations, c.dropped = nil, 0
	return out
}

// Seen counts answers by operation and status, as "getInvoice 200".
func (c *Checker) Seen() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int, len(c.seen))
	for k, n := range c.seen {
		out[k] = n
	}
	return out
}

func firstLines(err error) string {
	lines := strings.SplitN(err.Error(), "\n", 6)
	return shorten(strings.Join(lines[:min(len(lines), 5)], " / "))
}

func shorten(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
