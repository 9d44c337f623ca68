package e2e

import (
	"net/http"
	"testing"
)

// checkedClient is the one client of a test: an answer of 500, or one that the
// API's description does not know, fails the test.
func checkedClient(t *testing.T) *http.Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 128
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
