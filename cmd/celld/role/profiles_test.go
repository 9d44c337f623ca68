package role

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestProfilesAnswerUntilClosed(t *testing.T) {
	var p profiles
	var open listeners
	l, err := p.open(&open, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.serve(l, slog.New(slog.DiscardHandler))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (*http.Response, error) { return client.Get("http://" + l.Addr().String() + path) }
	for path, want := range map[string]string{
		"/debug/pprof/":                  "Types of profiles available",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/trace?seconds=0.1": "trace",
	} {
		resp, err := get(path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %.100q, %v", path, resp.Status, body, err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if resp, err := get("/debug/pprof/"); err == nil {
		t.Errorf("it answers %s after its end", resp.Status)
	}
}

func TestNoProfilesUnlessAsked(t *testing.T) {
	var p profiles
	var open listeners
	l, err := p.open(&open, "")
	if l != nil || err != nil || len(open) != 0 {
		t.Fatalf("%v, %v, %d listeners", l, err, len(open))
	}
	p.serve(l, slog.New(slog.DiscardHandler))
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
