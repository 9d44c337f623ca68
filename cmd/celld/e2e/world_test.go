package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
)

// together runs n calls at one time and waits for them.
func together(n int, call func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			call(i)
		})
	}
	close(begin)
	wg.Wait()
}

// etag is a version as If-Match names it.
func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// path makes a path of its parts, which are texts and numbers.
func path(parts ...any) string {
	s := ""
	for _, p := range parts {
		s += "/" + fmt.Sprint(p)
	}
	return s
}

// object is a JSON object that is sent.
type object map[string]any

// with is a copy with other members; a nil value leaves the member out.
func (o object) with(more object) object {
	all := object{}
	for k, v := range o {
		all[k] = v
	}
	for k, v := range more {
		if v == nil {
			delete(all, k)
			continue
		}
		all[k] = v
	}
	return all
}

// newCustomer makes a customer and returns its id.
func newCustomer(t testing.TB, c caller, tenant string) int64 {
	t.Helper()
	return c.post(t, path("tenants", tenant, "customers"), object{"name": "Ada"}).want(t, http.StatusCreated).number(t, "customerId")
}

// invoiceBody is a good invoice of a customer.
func invoiceBody(customer int64) object {
	return object{"customerId": customer, "amountMinor": 1250, "currency": "USD"}
}

// newInvoice makes an invoice and returns its id.
func newInvoice(t testing.TB, c caller, tenant string, customer int64) int64 {
	t.Helper()
	return c.post(t, path("tenants", tenant, "invoices"), invoiceBody(customer)).want(t, http.StatusCreated).number(t, "invoiceId")
}

// page is one page of a list.
type page struct {
	Items      []map[string]any `json:"items"`
	NextCursor string           `json:"nextCursor"`
}

// walk reads a list to its end; query has no limit and no cursor. Between two
// pages it calls between, if that is not nil.
func walk(t testing.TB, c caller, list, query string, limit int, between func(pages int)) []map[string]any {
	t.Helper()
	var items []map[string]any
	cursor := ""
	for pages := 1; ; pages++ {
		target := list + "?limit=" + strconv.Itoa(limit)
		if query != "" {
			target += "&" + query
		}
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		var p page
		c.get(t, target).want(t, http.StatusOK).into(t, &p)
		if len(p.Items) > limit {
			t.Fatalf("%s gave %d items", target, len(p.Items))
		}
		items = append(items, p.Items...)
		if p.NextCursor == "" {
			return items
		}
		if p.NextCursor == cursor { // a page may be empty, but the list goes on
			t.Fatalf("%s ends where it began", target)
		}
		cursor = p.NextCursor
		if between != nil {
			between(pages)
		}
	}
}

// readJSON reads a file.
func readJSON(t testing.TB, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
