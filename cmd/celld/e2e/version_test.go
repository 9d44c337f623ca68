package e2e

import (
	"net/http"
	"strconv"
	"testing"
)

// versions shows that of several changes to one version one wins.
func versions(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	customer := newCustomer(t, owner, tenant)
	for _, kind := range []struct {
		name string
		make func(t *testing.T) string
		body object
		note string // a member that tells whose change it is
	}{
		{"customers", func(t *testing.T) string {
			return path("tenants", tenant, "customers", newCustomer(t, owner, tenant))
		}, object{"name": "Ada"}, "name"},
		{"invoices", func(t *testing.T) string {
			return path("tenants", tenant, "invoices", newInvoice(t, owner, tenant, customer))
		}, invoiceBody(customer), "memo"},
	} {
		t.Run(kind.name+"/twenty at one time", func(t *testing.T) {
			const callers = 20
			target := kind.make(t)
			answers := make([]answer, callers)
			together(callers, func(i int) {
				r := request{method: http.MethodPut, path: target, body: kind.body.with(object{kind.note: "change " + strconv.Itoa(i)})}
				if i%2 == 0 {
					r.ifMatch = etag(1)
				} else {
					r.body = kind.body.with(object{kind.note: "change " + strconv.Itoa(i), "expectedVersion": 1})
				}
				answers[i], _ = owner.try(t.Context(), r)
			})
			winner := -1
			for i, a := range answers {
				switch {
				case a.status == http.StatusOK && winner < 0:
					winner = i
				case a.status == http.StatusOK:
					t.Fatalf("changes %d and %d of one version both won", winner, i)
				default:
					a.refused(t, http.StatusPreconditionFailed, "version-mismatch")
					if v := a.number(t, "currentVersion"); v != 2 {
						t.Fatalf("currentVersion %d, want 2", v)
					}
				}
			}
			if winner < 0 {
				t.Fatal("no change won")
			}
			now := owner.get(t, target).want(t, http.StatusOK)
			if now.number(t, "version") != 2 || now.header.Get("ETag") != etag(2) || now.text(t, kind.note) != "change "+strconv.Itoa(winner) {
				t.Fatalf("change %d won, and this is there (ETag %s): %s", winner, now.header.Get("ETag"), now.body)
			}
		})

		t.Run(kind.name+"/ways to say it", func(t *testing.T) {
			target := kind.make(t)
			put := func(ifMatch string, body object) answer {
				return owner.do(t, request{method: http.MethodPut, path: target, ifMatch: ifMatch, body: body})
			}
			put("", kind.body).want(t, http.StatusPreconditionRequired)
			if a := put(etag(1), kind.body).want(t, http.StatusOK); a.number(t, "version") != 2 || a.header.Get("ETag") != etag(2) {
				t.Fatalf("by If-Match: ETag %s, %s", a.header.Get("ETag"), a.body)
			}
			if a := put("", kind.body.with(object{"expectedVersion": 2})).want(t, http.StatusOK); a.number(t, "version") != 3 {
				t.Fatalf("by expectedVersion: %s", a.body)
			}
			if a := put(etag(3), kind.body.with(object{"expectedVersion": 3})).want(t, http.StatusOK); a.number(t, "version") != 4 {
				t.Fatalf("by both: %s", a.body)
			}
			put(etag(4), kind.body.with(object{"expectedVersion": 3})).want(t, http.StatusBadRequest)
			for _, version := range []int64{1, 3, 5, 1 << 40} {
				a := put(etag(version), kind.body).refused(t, http.StatusPreconditionFailed, "version-mismatch")
				if got := a.number(t, "currentVersion"); got != 4 {
					t.Errorf("expected %d: currentVersion %d, want 4", version, got)
				}
			}
			if v := owner.get(t, target).want(t, http.StatusOK).number(t, "version"); v != 4 {
				t.Errorf("a refusal made version %d", v)
			}
		})
	}
}
