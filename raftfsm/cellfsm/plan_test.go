package cellfsm

import (
	"path/filepath"
	"strings"
	"testing"

	"celld/store"
)

// TestPlans holds every list to an index that has its order: no page sorts, and
// none walks rows that an indexed filter leaves out.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenant.db")
	if err := store.Create(path, TenantSchema(), store.Control{}, 0); err != nil {
		t.Fatal(err)
	}
	f, err := store.Open(path, TenantSchema())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, text, status, customer := int64(5), "x", Draft, CustomerID(1)
	customers := func(f CustomerFilter) *selection { return selectCustomers("T7", f) }
	invoices := func(f InvoiceFilter) *selection { return selectInvoices("T7", f) }
	for _, c := range []struct {
		name string
		make func() *selection
		uses []string
	}{
		{"all invoices", func() *selection { return invoices(InvoiceFilter{}) }, []string{"PRIMARY KEY"}},
		{"a customer's", func() *selection {
			return invoices(InvoiceFilter{Customer: &customer, Status: &status, Currency: &text})
		}, []string{"invoice_customer"}},
		{"drafts", func() *selection { return invoices(InvoiceFilter{Status: &status}) }, []string{"invoice_status"}},
		{"a month's", func() *selection { return invoices(InvoiceFilter{CreatedAfter: &n, CreatedBefore: &n}) }, []string{"PRIMARY KEY", "COVERING INDEX invoice_created"}},
		{"a month's drafts", func() *selection { return invoices(InvoiceFilter{Status: &status, CreatedAfter: &n}) }, []string{"invoice_status", "COVERING INDEX invoice_created"}},
		{"all customers", func() *selection { return customers(CustomerFilter{}) }, []string{"PRIMARY KEY"}},
		{"by reference", func() *selection { return customers(CustomerFilter{Reference: &text}) }, []string{"customer_reference"}},
		{"a month's customers", func() *selection { return customers(CustomerFilter{CreatedBefore: &n}) }, []string{"PRIMARY KEY", "COVERING INDEX customer_created"}},
	} {
		for _, o := range []Order{{}, {Descending: true}} {
			for _, behind := range []int64{0, 7} {
				sql, args := c.make().statement("*", o, behind, 8)
				var plan []string
				err := f.View(func(c *store.Conn) error {
					return c.Query("EXPLAIN QUERY PLAN "+sql, func(r *store.Row) error {
						plan = append(plan, r.ColumnText(3))
						return nil
					}, args...)
				})
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(plan, "; ")
				for _, want := range c.uses {
					if !strings.Contains(text, want) {
						t.Errorf("%s: %s\n is planned as %s, without %s", c.name, sql, text, want)
					}
				}
				if strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "SCAN") && !strings.Contains(text, "SCAN CONSTANT") {
					t.Errorf("%s: %s\n is planned as %s", c.name, sql, text)
				}
			}
		}
	}
}
