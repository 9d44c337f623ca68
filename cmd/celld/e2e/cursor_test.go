package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// cursors shows that a walk through a list meets each old row once, and that a
// cursor is good for its own list alone.
func cursors(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	customer := newCustomer(t, owner, tenant)
	second := newCustomer(t, owner, tenant)
	invoices := path("tenants", tenant, "invoices")

	const old = 1000
	release := w.pinTime(t, owner, tenant)
	defer release()
	made := make([]int64, old)
	var next atomic.Int64
	together(32, func(int) {
		for {
			i := next.Add(1) - 1
			if i >= old || t.Failed() {
				return
			}
			a, err := owner.try(t.Context(), request{method: http.MethodPost, path: invoices, body: invoiceBody(customer)})
			if err != nil || a.status != http.StatusCreated {
				t.Errorf("invoice %d: %v %d %s", i, err, a.status, a.body)
				return
			}
			made[i] = a.number(t, "invoiceId")
		}
	})
	release()
	if t.Failed() {
		return
	}
	stamps := map[any]int{}
	for _, item := range walk(t, owner, invoices, "", 500, nil) {
		stamps[item["createdAt"]]++
	}
	if len(stamps) != 1 {
		t.Fatalf("the %d invoices have %d creation times; the walk is to prove what one time does", old, len(stamps))
	}

	for _, query := range []string{"sort=createdAt", "sort=-createdAt", "sort=invoiceId", "sort=-invoiceId", "sort=createdAt&status=draft&currency=USD"} {
		t.Run("walk/"+query, func(t *testing.T) { walkOnce(t, owner, tenant, customer, query, made) })
	}
	t.Run("elsewhere", func(t *testing.T) { cursorElsewhere(t, w, owner, tenant, second) })
	t.Run("each byte", func(t *testing.T) { cursorBytes(t, owner, invoices) })
}

// walkOnce walks through a list while rows are added, and holds what it met
// against the rows that were there before.
func walkOnce(t *testing.T, owner caller, tenant string, customer int64, query string, made []int64) {
	seen := map[string]int{}
	var last string
	items := walk(t, owner, path("tenants", tenant, "invoices"), query, 7, func(pages int) {
		if pages%10 == 0 {
			newInvoice(t, owner, tenant, customer)
		}
	})
	for _, item := range items {
		id := strings.TrimLeft(path(item["invoiceId"]), "/")
		seen[id]++
		if last != "" && ascending(last, id) == strings.Contains(query, "=-") {
			t.Fatalf("%s comes behind %s", id, last)
		}
		last = id
	}
	for _, id := range made {
		if n := seen[path(id)[1:]]; n != 1 {
			t.Errorf("invoice %d was met %d times", id, n)
		}
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("invoice %s was met %d times", id, n)
		}
	}
}

// firstCursor is the cursor behind the first page of a list.
func firstCursor(t *testing.T, owner caller, list, query string) string {
	t.Helper()
	var p page
	owner.get(t, list+"?limit=7&"+query).want(t, http.StatusOK).into(t, &p)
	if p.NextCursor == "" {
		t.Fatalf("%s?%s has one page only", list, query)
	}
	return p.NextCursor
}

// cursorElsewhere shows that a cursor is refused by every list but its own.
func cursorElsewhere(t *testing.T, w *world, owner caller, tenant string, second int64) {
	invoices := path("tenants", tenant, "invoices")
	otherTenant := w.newTenant(t, owner)
	otherCustomer := newCustomer(t, owner, otherTenant)
	for range 8 {
		newInvoice(t, owner, otherTenant, otherCustomer)
		newCustomer(t, owner, tenant)
	}
	cursor := firstCursor(t, owner, invoices, "sort=createdAt&status=draft")
	owner.get(t, invoices+"?limit=7&sort=createdAt&status=draft&cursor="+cursor).want(t, http.StatusOK)
	owner.get(t, invoices+"?limit=9&sort=createdAt&status=draft&cursor="+cursor).want(t, http.StatusOK) // the limit is no part of it
	foreign := firstCursor(t, owner, path("tenants", otherTenant, "invoices"), "sort=createdAt&status=draft")
	for what, target := range map[string]string{
		"sort":            invoices + "?sort=invoiceId&status=draft&cursor=" + cursor,
		"order":           invoices + "?sort=-createdAt&status=draft&cursor=" + cursor,
		"no sort":         invoices + "?status=draft&cursor=" + cursor,
		"status":          invoices + "?sort=createdAt&status=paid&cursor=" + cursor,
		"no filter":       invoices + "?sort=createdAt&cursor=" + cursor,
		"more filters":    invoices + "?sort=createdAt&status=draft&currency=USD&cursor=" + cursor,
		"customer":        invoices + "?sort=createdAt&status=draft&customerId=" + path(second)[1:] + "&cursor=" + cursor,
		"time":            invoices + "?sort=createdAt&status=draft&createdAfter=2020-01-01T00:00:00Z&cursor=" + cursor,
		"route":           path("tenants", tenant, "customers") + "?sort=createdAt&cursor=" + cursor,
		"tenant":          path("tenants", otherTenant, "invoices") + "?sort=createdAt&status=draft&cursor=" + cursor,
		"tenant's own":    invoices + "?sort=createdAt&status=draft&cursor=" + foreign,
		"route's own":     invoices + "?cursor=" + firstCursor(t, owner, path("tenants", tenant, "customers"), ""),
		"empty":           invoices + "?sort=createdAt&status=draft&cursor=",
		"SQL":             invoices + "?sort=createdAt&status=draft&cursor=" + url.QueryEscape("' OR 1=1 --"),
		"longer":          invoices + "?sort=createdAt&status=draft&cursor=" + cursor + "A",
		"padded":          invoices + "?sort=createdAt&status=draft&cursor=" + cursor + "%3D",
		"a line break in": invoices + "?sort=createdAt&status=draft&cursor=" + cursor[:9] + "%0A" + cursor[9:],
		"very long":       invoices + "?sort=createdAt&status=draft&cursor=" + strings.Repeat("A", 4000),
	} {
		t.Run(what, func(t *testing.T) {
			owner.get(t, target).refused(t, http.StatusBadRequest, "invalid-cursor")
		})
	}
}

// cursorBytes shows that a cursor with one changed character, or cut short, is
// refused.
func cursorBytes(t *testing.T, owner caller, invoices string) {
	cursor := firstCursor(t, owner, invoices, "sort=createdAt")
	for i := range len(cursor) {
		for _, other := range []byte{cursor[i] ^ 1, 'A', '_'} {
			changed := cursor[:i] + string(rune(other)) + cursor[i+1:]
			if changed == cursor || other < '-' {
				continue
			}
			owner.get(t, invoices+"?sort=createdAt&cursor="+url.QueryEscape(changed)).refused(t, http.StatusBadRequest, "invalid-cursor")
		}
		owner.get(t, invoices+"?sort=createdAt&cursor="+cursor[:i]).refused(t, http.StatusBadRequest, "invalid-cursor")
	}
}

// ascending reports whether two whole numbers stand in rising order.
func ascending(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}
