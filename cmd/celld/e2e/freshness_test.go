package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// freshness shows what a reader sees of what was written: by default everything
// that was acknowledged, with Celld-Min-Index at least that much, on whichever
// replica.
func freshness(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	customer := newCustomer(t, owner, tenant)
	target := path("tenants", tenant, "invoices", newInvoice(t, owner, tenant, customer))
	const changes = 150

	// Readers ask at the same time for what the writer has been told last.
	type told struct {
		version int64
		index   string
	}
	var last atomic.Pointer[told]
	first := owner.get(t, target).want(t, http.StatusOK)
	last.Store(&told{1, first.header.Get("Celld-Index")})
	var done atomic.Bool
	var reads [3]atomic.Int64
	together(4, func(i int) {
		if i == 3 {
			defer done.Store(true)
			for version := int64(1); version <= changes; version++ {
				a, err := owner.try(t.Context(), request{method: http.MethodPut, path: target, ifMatch: etag(version), body: invoiceBody(customer)})
				if err != nil || a.status != http.StatusOK {
					t.Errorf("version %d: %v %d %s", version, err, a.status, a.body)
					return
				}
				last.Store(&told{version + 1, a.header.Get("Celld-Index")})
			}
			return
		}
		for !done.Load() && !t.Failed() {
			want := last.Load()
			r := request{method: http.MethodGet, path: target}
			switch i {
			case 1:
				r.header = http.Header{"Celld-Min-Index": {want.index}}
			case 2:
				r.header = http.Header{"Celld-Min-Index": {want.index}, "Celld-Consistency": {"stale"}}
			}
			a, err := owner.try(t.Context(), r)
			if err != nil || a.status != http.StatusOK {
				t.Errorf("a read: %v %d %s", err, a.status, a.body)
				return
			}
			if a.number(t, "version") < want.version || indexOf(t, a.header.Get("Celld-Index")) < indexOf(t, want.index) {
				t.Errorf("version %d at %s was acknowledged, and reader %d sees %s: %s", want.version, want.index, i, a.header.Get("Celld-Index"), a.body)
				return
			}
			reads[i].Add(1)
		}
	})
	t.Logf("%d changes; reads: %d by default, %d with an index, %d with an index and stale", changes, reads[0].Load(), reads[1].Load(), reads[2].Load())

	stale := owner.do(t, request{method: http.MethodGet, path: target, header: http.Header{"Celld-Consistency": {"stale"}}})
	stale.want(t, http.StatusOK)
	// What no log has yet is waited for, and then given up.
	ahead := []string{"2.1", "1.999999999"}
	answers := make([]answer, len(ahead))
	together(len(ahead), func(i int) {
		answers[i], _ = owner.try(t.Context(), request{method: http.MethodGet, path: target, header: http.Header{"Celld-Min-Index": {ahead[i]}}})
	})
	for _, a := range answers {
		a.want(t, http.StatusServiceUnavailable)
	}
}

// indexOf is the log index within a Celld-Index.
func indexOf(t testing.TB, s string) (index uint64) {
	t.Helper()
	var epoch uint64
	if n, err := fmt.Sscanf(s, "%d.%d", &epoch, &index); n != 2 || err != nil || strings.Count(s, ".") != 1 || epoch != 1 {
		t.Errorf("%q is no index of epoch 1", s)
	}
	return index
}
