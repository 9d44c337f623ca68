package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// nothing is a writer that keeps nothing.
type nothing struct{ header http.Header }

func (n *nothing) Header() http.Header         { return n.header }
func (n *nothing) Write(b []byte) (int, error) { return len(b), nil }
func (n *nothing) WriteHeader(int)             {}

// BenchmarkFrontDoor is the gateway's own share of a read: all but the network and
// the cell.
func BenchmarkFrontDoor(b *testing.B) {
	c := newFakeCell(b, "C2", "n1")
	body := []byte(`{"ok":true}`)
	handlers := map[string]http.Handler{"C2/n1": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tenants/T7/invoices/17" {
			c.nodes["n1"].ServeHTTP(w, r)
			return
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(body)
	})}
	w := newWorld(b, func(cfg *Config) {
		cfg.Local = handlers
		cfg.Logger = slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	w.register(b, c, c.addresses())
	w.people(b)
	r := httptest.NewRequestWithContext(b.Context(), "GET", "/tenants/T7/invoices/17", nil)
	r.Header.Set("Authorization", "Bearer "+w.tokens["U7"])
	b.ReportAllocs()
	for b.Loop() {
		w.servePublic(&nothing{make(http.Header)}, r)
	}
}
