package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// TestTour is what a newcomer does in the first minutes, across a restart of the
// whole platform on the same folder.
func TestTour(t *testing.T) {
	dir := t.TempDir()
	w := start(t, setup{dir: dir, gateways: 1})
	ada, bob, eve := w.newUser(t), w.newUser(t), w.newUser(t)

	made := ada.post(t, "/tenants", object{"name": "Analytical Engines"}).want(t, http.StatusCreated)
	tenant := made.text(t, "tenantId")
	if made.text(t, "name") != "Analytical Engines" {
		t.Fatalf("the new tenant: %s", made.body)
	}
	bob.get(t, path("tenants", tenant)).want(t, http.StatusNotFound)

	// An invite is for its receiver, once.
	invite := ada.post(t, path("tenants", tenant, "invites"), object{"email": bob.email(), "role": "viewer"}).want(t, http.StatusCreated)
	token := invite.text(t, "token")
	listed := ada.get(t, path("tenants", tenant, "invites")).want(t, http.StatusOK)
	if bytes.Contains(listed.body, []byte(token)) || !bytes.Contains(listed.body, []byte(bob.email())) {
		t.Fatalf("open invites: %s", listed.body)
	}
	if a := eve.post(t, "/invites/accept", object{"token": token}); a.status < 400 || a.status >= 500 {
		t.Fatalf("somebody else accepted the invite: %d %s", a.status, a.body)
	}
	bob.post(t, "/invites/accept", object{"token": token}).want(t, http.StatusOK)
	if a := eve.post(t, "/invites/accept", object{"token": token}); a.status < 400 || a.status >= 500 {
		t.Fatalf("an invite was accepted twice: %d %s", a.status, a.body)
	}
	revoked := ada.post(t, path("tenants", tenant, "invites"), object{"email": eve.email(), "role": "admin"}).want(t, http.StatusCreated)
	ada.delete(t, path("tenants", tenant, "invites", revoked.text(t, "inviteId"))).want(t, http.StatusNoContent)
	if a := eve.post(t, "/invites/accept", object{"token": revoked.text(t, "token")}); a.status < 400 || a.status >= 500 {
		t.Fatalf("a revoked invite was accepted: %d %s", a.status, a.body)
	}

	// What a role may do follows the role.
	customers, invoices := path("tenants", tenant, "customers"), path("tenants", tenant, "invoices")
	bob.post(t, customers, object{"name": "Babbage"}).want(t, http.StatusForbidden)
	ada.do(t, request{method: http.MethodPatch, path: path("tenants", tenant, "members", bob.name), body: object{"role": "member"}}).want(t, http.StatusOK)
	customer := bob.post(t, customers, object{"name": "Babbage", "reference": "B-1", "email": "cb@example.org", "country": "GB"}).
		want(t, http.StatusCreated).number(t, "customerId")
	bob.post(t, customers, object{"name": "Twin", "reference": "B-1"}).refused(t, http.StatusConflict, "reference-taken")
	ada.do(t, request{method: http.MethodPatch, path: path("tenants", tenant, "members", ada.name), body: object{"role": "member"}}).refused(t, http.StatusConflict, "last-owner")
	ada.delete(t, path("tenants", tenant, "members", ada.name)).refused(t, http.StatusConflict, "last-owner")

	one := lifeOfAnInvoice(t, ada, bob, tenant, customer)
	for range 5 {
		newInvoice(t, bob, tenant, customer)
	}
	key := request{method: http.MethodPost, path: invoices, key: "before-the-restart", body: invoiceBody(customer)}
	first := bob.do(t, key).want(t, http.StatusCreated)
	index := first.header.Get("Celld-Index")
	before := []string{one, path("tenants", tenant, "customers", customer), invoices, customers, invoices + "?status=paid", invoices + "?limit=2&sort=-createdAt",
		path("tenants", tenant, "members"), path("tenants", tenant)}
	answers := map[string][]byte{}
	for _, target := range before {
		answers[target] = withoutCursor(t, ada.get(t, target).want(t, http.StatusOK))
	}
	var cursorPage page
	ada.get(t, invoices+"?limit=2").want(t, http.StatusOK).into(t, &cursorPage)

	cut := w.stopUnderWrites(t, ada)
	w = start(t, setup{dir: dir})
	cut.check(t, w)
	ada, bob = w.as(ada.name, ada.token), w.as(bob.name, bob.token)
	for _, target := range before {
		if got := withoutCursor(t, ada.get(t, target).want(t, http.StatusOK)); !bytes.Equal(got, answers[target]) {
			t.Errorf("GET %s before and after the restart:\n%s\n%s", target, answers[target], got)
		}
	}
	again := bob.do(t, key).want(t, http.StatusCreated)
	if again.header.Get(headerReplayed) != "true" || !bytes.Equal(again.body, first.body) {
		t.Errorf("a key from before the restart: %s, was %s", again.body, first.body)
	}
	ada.get(t, invoices+"?limit=2&cursor="+cursorPage.NextCursor).want(t, http.StatusOK)
	bob.do(t, request{method: http.MethodGet, path: one, header: http.Header{"Celld-Min-Index": {index}}}).want(t, http.StatusOK)
	if next := newInvoice(t, bob, tenant, customer); next != first.number(t, "invoiceId")+1 {
		t.Errorf("the first invoice after the restart is %d, the last one before was %d", next, first.number(t, "invoiceId"))
	}
}

// lifeOfAnInvoice takes an invoice from its making by an owner to its payment by
// a member, and returns its path.
func lifeOfAnInvoice(t *testing.T, ada, bob caller, tenant string, customer int64) string {
	t.Helper()
	invoices := path("tenants", tenant, "invoices")
	full := invoiceBody(customer).with(object{"reference": "I-1", "memo": "first\tof\nmany", "issuedAt": "2026-01-31T09:30:00Z", "internal": object{"costMinor": 900, "note": "margin"}})
	bob.post(t, invoices, full).want(t, http.StatusForbidden)
	one := path("tenants", tenant, "invoices", ada.post(t, invoices, full).want(t, http.StatusCreated).number(t, "invoiceId"))
	if a := bob.get(t, one).want(t, http.StatusOK); bytes.Contains(a.body, []byte("internal")) || bytes.Contains(a.body, []byte("margin")) {
		t.Fatalf("a member sees the internal part: %s", a.body)
	}
	version := int64(1)
	for _, status := range []string{"issued", "paid"} {
		bob.put(t, one, version, invoiceBody(customer).with(object{"status": status, "memo": "now " + status})).want(t, http.StatusOK)
		version++
	}
	bob.put(t, one, version, invoiceBody(customer).with(object{"status": "draft"})).refused(t, http.StatusConflict, "invalid-transition")
	bob.put(t, one, version, invoiceBody(customer)).want(t, http.StatusOK) // status and internal stay, the rest is cleared
	now := ada.get(t, one).want(t, http.StatusOK)
	all := now.object(t)
	if all["status"] != "paid" || all["memo"] != nil || all["reference"] != nil || !bytes.Contains(now.body, []byte("margin")) {
		t.Fatalf("after an update without optional fields: %s", now.body)
	}
	return one
}

// unfinished is a tenant in which writes were under way when the platform stopped.
type unfinished struct {
	owner        caller
	tenant       string
	acknowledged map[string]int64 // invoice by reference
}

// stopUnderWrites stops the platform while invoices are written.
func (w *world) stopUnderWrites(t *testing.T, owner caller) unfinished {
	t.Helper()
	u := unfinished{owner: owner, tenant: w.newTenant(t, owner), acknowledged: map[string]int64{}}
	customer := newCustomer(t, owner, u.tenant)
	var mu sync.Mutex
	var count atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				reference := fmt.Sprintf("stop-%d-%d", i, n)
				a, err := owner.try(t.Context(), request{method: http.MethodPost, path: path("tenants", u.tenant, "invoices"),
					body: invoiceBody(customer).with(object{"reference": reference})})
				if err != nil || a.status == http.StatusServiceUnavailable {
					return // it stops
				}
				if a.status != http.StatusCreated {
					t.Errorf("%s: %d %s", reference, a.status, a.body)
					return
				}
				count.Add(1)
				mu.Lock()
				u.acknowledged[reference] = a.number(t, "invoiceId")
				mu.Unlock()
			}
		})
	}
	eventually(t, "invoices are written", func() bool { return count.Load() > 50 || t.Failed() })
	w.stop(t)
	wg.Wait()
	return u
}

// check looks for everything that was acknowledged.
func (u unfinished) check(t *testing.T, w *world) {
	t.Helper()
	there := map[string]string{}
	for _, item := range walk(t, w.as(u.owner.name, u.owner.token), path("tenants", u.tenant, "invoices"), "", 500, nil) {
		there[fmt.Sprint(item["reference"])] = fmt.Sprint(item["invoiceId"])
	}
	for reference, id := range u.acknowledged {
		if there[reference] != fmt.Sprint(id) {
			t.Errorf("%s was acknowledged as invoice %d before the stop and is %q after it", reference, id, there[reference])
		}
	}
	t.Logf("%d invoices were acknowledged while the platform stopped, %d are there", len(u.acknowledged), len(there))
	if more := len(there) - len(u.acknowledged); more > 8 {
		t.Errorf("%d invoices more than callers", more)
	}
}

// withoutCursor is an answer's body without the cursor, which is sealed with
// something random each time.
func withoutCursor(t *testing.T, a answer) []byte {
	t.Helper()
	all := a.object(t)
	delete(all, "nextCursor")
	raw, err := encoded(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
