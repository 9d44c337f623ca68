package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

func layOut(t *testing.T, tenants int) *product {
	t.Helper()
	p := &product{addr: "127.0.0.1:8080", run: strings.Repeat("R", 16), tenants: make([]benchTenant, tenants)}
	for i := range p.tenants {
		b := &p.tenants[i]
		b.id, b.token, b.customer, b.invoices = string(rune('A'+i)), "secret", 4, 3
		if err := p.layOut(b); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestRequestsAreHTTP reads what goes out with net/http's own reader.
func TestRequestsAreHTTP(t *testing.T) {
	p := layOut(t, 2)
	keys := map[string]bool{}
	w, other := p.writer(), p.writer()
	for i := range 100 {
		from := w
		if i%2 == 1 {
			from = other
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(from.next())))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || int64(len(body)) != req.ContentLength || !bytes.HasPrefix(body, []byte("{")) {
			t.Fatalf("body %q, length %d: %v", body, req.ContentLength, err)
		}
		key := req.Header.Get("Idempotency-Key")
		if len(key) != keyLen || keys[key] {
			t.Fatalf("key %q is used twice or has another length than %d", key, keyLen)
		}
		keys[key] = true
	}
	r := p.reader()
	seen := map[string]bool{}
	for range 200 {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.next())))
		if err != nil {
			t.Fatal(err)
		}
		if req.Header.Get("Authorization") != "Bearer secret" {
			t.Fatalf("no credentials in %v", req.Header)
		}
		seen[req.URL.Path] = true
	}
	if len(seen) != 6 {
		t.Fatalf("200 reads of 2 tenants with 3 invoices each met %d of them", len(seen))
	}
}

func TestHotTenantGetsItsShare(t *testing.T) {
	p := layOut(t, 10)
	p.hot = 0.5
	_, r := p.worker()
	first := 0
	for range 10_000 {
		if p.pick(r) == &p.tenants[0] {
			first++
		}
	}
	if first < 5_200 || first > 5_800 { // 55 %, with a fixed seed
		t.Fatalf("the hot tenant got %d of 10000", first)
	}
}
