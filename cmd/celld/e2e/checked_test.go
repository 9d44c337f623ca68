package e2e

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"celld/gateway"
	"celld/gateway/openapitest"
)

// checkedClient is the client of a platform's public API: an answer that
// openapi.yaml does not know fails the test when it ends, and so does a 500.
func checkedClient(t *testing.T) (*http.Client, *openapitest.Checker) {
	t.Helper()
	checker, err := openapitest.New(gateway.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, v := range checker.Violations() {
			t.Errorf("against openapi.yaml: %s", v)
		}
	})
	c := plainClient(t)
	c.Transport = checker.Transport(c.Transport)
	return c, checker
}

// plainClient is the client of the operator API, which openapi.yaml leaves out.
// An answer of 500 fails the test.
func plainClient(t *testing.T) *http.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 128
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     noFault{t, transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// noFault holds an answer of 500 against the server, whatever was sent.
type noFault struct {
	t    *testing.T
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f noFault) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(r)
	if err == nil && resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // for the message alone
		resp.Body.Close()
		err = fmt.Errorf("%s %s answered %s: %s", r.Method, r.URL.Path, resp.Status, raw)
		f.t.Error(err)
		return nil, err
	}
	return resp, err
}

// everyRouteSucceeded holds what was seen of a platform against the route table:
// a test of the whole API has had each route's success at least once.
func everyRouteSucceeded(t *testing.T, checker *openapitest.Checker) {
	t.Helper()
	seen := checker.Seen()
	for _, route := range gateway.Routes() {
		if seen[fmt.Sprintf("%s %d", route.Name, route.Success)] == 0 {
			t.Errorf("no request through the route %s was answered with %d", route.Name, route.Success)
		}
	}
	t.Logf("seen: %v", seen)
}
