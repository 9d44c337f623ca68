package cellfsm

import (
	"path/filepath"
	"strings"
	"testing"

	"celld/store"
)

// TestPlans holds every list to an index that has its order: no page sorts, and
// none walks rows that the index of its first filter leaves out.
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
	customers := func(f CustomerFilter) func(*store.Conn) (*selection, error) {
		return func(c *store.Conn) (*selection, error) {
			s := selectCustomers("T7", f)
			return s, s.created(c, f.CreatedAfter, f.CreatedBefore)
		}
	}
	invoices := func(f InvoiceFilter) func(*store.Conn) (*selection, error) {
		return func(c *store.Conn) (*selection, error) {
			s := selectInvoices("T7", f)
			return s, s.created(c, f.CreatedAfter, f.CreatedBefore)
		}
	}
	for _, c := range []struct {
		name string
		make func(*store.Conn) (*selection, error)
		uses []string
	}{
		{"all invoices", invoices(InvoiceFilter{}), []string{"PRIMARY KEY"}},
		{"a customer's", invoices(InvoiceFilter{Customer: &customer, Status: &status, Currency: &text}), []string{"invoice_customer"}},
		{"a customer's drafts", invoices(InvoiceFilter{Customer: &customer, Status: &status}), []string{"invoice_customer"}},
		{"drafts in a currency", invoices(InvoiceFilter{Status: &status, Currency: &text}), []string{"invoice_status"}},
		{"a currency's", invoices(InvoiceFilter{Currency: &text}), []string{"PRIMARY KEY"}},
		{"drafts", invoices(InvoiceFilter{Status: &status}), []string{"invoice_status"}},
		{"a month's", invoices(InvoiceFilter{CreatedAfter: &n, CreatedBefore: &n}), []string{"PRIMARY KEY"}},
		{"a month's drafts", invoices(InvoiceFilter{Status: &status, CreatedAfter: &n}), []string{"invoice_status"}},
		{"all customers", customers(CustomerFilter{}), []string{"PRIMARY KEY"}},
		{"by reference", customers(CustomerFilter{Reference: &text}), []string{"customer_reference"}},
		{"a month's customers", customers(CustomerFilter{CreatedBefore: &n}), []string{"PRIMARY KEY"}},
	} {
		for _, o := range []Order{{}, {Descending: true}} {
			for _, behind := range []int64{0, 7} {
				var sql string
				var plan []string
				err := f.View(func(conn *store.Conn) error {
					s, err := c.make(conn)
					if err != nil {
						return err
					}
					var args []any
					s.behind(o, behind)
					sql, args = s.statement("*", o, 8)
					return conn.Query("EXPLAIN QUERY PLAN "+sql, func(r *store.Row) error {
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
