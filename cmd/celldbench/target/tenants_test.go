package target

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"celld/cmd/celldbench/load"
)

func laidOut(tenants, customers int) *Tenants {
	ts := &Tenants{
		shape: Shape{Tenants: tenants, Active: tenants, Cells: 1, Customers: customers, Invoices: 3},
		addr:  "127.0.0.1:8080", run: strings.Repeat("R", 16), all: make([]tenant, tenants),
	}
	for i := range ts.all {
		t := &ts.all[i]
		t.id, t.token = string(rune('A'+i)), "secret"
		t.invoices.Store(3)
	}
	return ts
}

// read reads what goes out with net/http's own reader.
func read(t *testing.T, from load.Requests) (*http.Request, []byte) {
	t.Helper()
	request, _ := from.Next()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil || int64(len(body)) != req.ContentLength {
		t.Fatalf("body %q, length %d: %v", body, req.ContentLength, err)
	}
	if req.Header.Get("Authorization") != "Bearer secret" {
		t.Fatalf("no credentials in %v", req.Header)
	}
	return req, body
}

func TestReadsMeetEveryInvoice(t *testing.T) {
	ts := laidOut(2, 1)
	r := ts.reader(ts.Active(0))
	seen := map[string]bool{}
	for range 200 {
		req, _ := read(t, r)
		seen[req.URL.Path] = true
	}
	if len(seen) != 6 || !seen["/tenants/A/invoices/1"] || !seen["/tenants/B/invoices/3"] {
		t.Fatalf("200 reads of 2 tenants with 3 invoices each met %v", seen)
	}
}

func TestWritesHaveKeysOfTheirOwn(t *testing.T) {
	ts := laidOut(2, 2)
	keys, bodies := map[string]bool{}, map[string]bool{}
	var writers []*writer
	for range 2 {
		w, err := ts.writer(ts.Active(0))
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for i := range 200 {
		req, body := read(t, writers[i%2])
		key := req.Header.Get("Idempotency-Key")
		if len(key) != keyLen || keys[key] {
			t.Fatalf("key %q is used twice or has another length than %d", key, keyLen)
		}
		keys[key], bodies[req.URL.Path+string(body)] = true, true
	}
	if len(bodies) != 4 {
		t.Fatalf("200 writes into 2 tenants with 2 customers each met %d of them", len(bodies))
	}
}

func TestChoices(t *testing.T) {
	ts := laidOut(10, 1)
	for name, c := range map[string]struct {
		choice      Choice
		least, most int // of 10,000: to the choice's first, as the class of hot
	}{
		"all alike":  {ts.Active(0), 0, 0},
		"hot":        {ts.Active(0.5), 5_200, 5_800}, // 55 %, with a fixed seed
		"one alone":  {Choice{First: 3, Count: 1}, 0, 0},
		"all but it": {Choice{First: 1, Count: 9}, 0, 0},
	} {
		_, random := ts.worker()
		hot, met := 0, map[int]bool{}
		for range 10_000 {
			i, class := c.choice.pick(random)
			met[i] = true
			if class == ToHot {
				hot++
				if i != c.choice.First {
					t.Fatalf("%s: tenant %d is not the hot one", name, i)
				}
			}
		}
		if hot < c.least || hot > c.most || len(met) != c.choice.Count || met[c.choice.First-1] {
			t.Errorf("%s: %d to the hot tenant, met %v", name, hot, met)
		}
	}
}

func TestAuditCountsWhatIsKnown(t *testing.T) {
	ts := laidOut(1, 1)
	r := load.NewResult()
	r.Calls, r.Failed = 10, 2
	ts.Wrote(r, r)
	if a, u := ts.acknowledged.Load(), ts.unknown.Load(); a != 16 || u != 4 {
		t.Errorf("%d acknowledged, %d unknown", a, u)
	}
}
