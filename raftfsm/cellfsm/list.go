package cellfsm

import (
	"fmt"
	"strings"

	"celld/store"
	"celld/store/tenant"
)

// Order is the order of a list, by id and by creation at once: both are given
// out in the transaction that makes a record, and neither ever goes back, so
// that ordering by creation time and id is ordering by id (DESIGN.md). Ids never
// change, so a walk meets no row twice and skips none that was there when it
// began.
type Order struct{ Descending bool }

// CustomerFilter selects customers; a nil part selects all.
type CustomerFilter struct {
	Reference     *string
	CreatedAfter  *int64 // unix microseconds, exclusive
	CreatedBefore *int64 // exclusive
}

// InvoiceFilter selects invoices; a nil part selects all.
type InvoiceFilter struct {
	Customer      *CustomerID
	Status        *Status
	Currency      *string
	CreatedAfter  *int64 // unix microseconds, exclusive
	CreatedBefore *int64 // exclusive
}

// selection builds a list's statement. The texts come from the program alone;
// values are always bound. There are few distinct texts, so a connection's
// cache of prepared statements stays small.
type selection struct {
	tenant tenant.ID
	table  string
	index  string // the one to walk; "" is the primary key
	where  []string
	args   []any
}

func selectFrom(table string, t tenant.ID) *selection {
	return &selection{tenant: t, table: table, where: []string{"tenant_id = ?"}, args: []any{string(t)}}
}

func (s *selection) and(condition string, args ...any) {
	s.where = append(s.where, condition)
	s.args = append(s.args, args...)
}

// created turns bounds of time into bounds of id.
func (s *selection) created(after, before *int64) {
	last := func(condition string) string {
		return fmt.Sprintf("coalesce((SELECT %[1]s_id FROM %[1]s WHERE tenant_id = ? AND created_at %[2]s ? ORDER BY created_at DESC, %[1]s_id DESC LIMIT 1), 0)", s.table, condition)
	}
	if after != nil {
		s.and(s.table+"_id > "+last("<="), string(s.tenant), *after)
	}
	if before != nil {
		s.and(s.table+"_id <= "+last("<"), string(s.tenant), *before)
	}
}

// statement walks an index that has the rows in order of id, so that a page
// costs what it reads: without INDEXED BY the planner, which knows nothing of
// how selective a filter is, would walk the table.
func (s *selection) statement(columns string, o Order, behind int64, limit int) (string, []any) {
	from, direction, beyond := s.table, " ASC", " > ?"
	if s.index != "" {
		from += " INDEXED BY " + s.index
	}
	if o.Descending {
		direction, beyond = " DESC", " < ?"
	}
	if behind != 0 {
		s.and(s.table+"_id"+beyond, behind)
	}
	return "SELECT " + columns + " FROM " + from + " WHERE " + strings.Join(s.where, " AND ") +
		" ORDER BY " + s.table + "_id" + direction + " LIMIT ?", append(s.args, limit)
}

// ListCustomers reads at most limit customers behind the one given; 0 is the
// beginning.
func ListCustomers(c *store.Conn, t tenant.ID, f CustomerFilter, o Order, behind CustomerID, limit int) ([]Customer, error) {
	s := selectCustomers(t, f)
	var rows []Customer
	sql, args := s.statement(customerColumns, o, int64(behind), limit)
	err := c.Query(sql, func(r *store.Row) error { rows = append(rows, scanCustomer(r)); return nil }, args...)
	return rows, err
}

// ListInvoices reads at most limit invoices behind the one given; 0 is the
// beginning.
func ListInvoices(c *store.Conn, t tenant.ID, f InvoiceFilter, o Order, behind InvoiceID, limit int) ([]Invoice, error) {
	s := selectInvoices(t, f)
	var rows []Invoice
	sql, args := s.statement(invoiceColumns, o, int64(behind), limit)
	err := c.Query(sql, func(r *store.Row) error { rows = append(rows, scanInvoice(r)); return nil }, args...)
	return rows, err
}

func selectCustomers(t tenant.ID, f CustomerFilter) *selection {
	s := selectFrom("customer", t)
	if f.Reference != nil {
		s.index = "customer_reference" // at most one row
		s.and("reference = ?", *f.Reference)
	}
	s.created(f.CreatedAfter, f.CreatedBefore)
	return s
}

func selectInvoices(t tenant.ID, f InvoiceFilter) *selection {
	s := selectFrom("invoice", t)
	if f.Status != nil {
		s.index = "invoice_status"
		s.and("status = ?", string(*f.Status))
	}
	if f.Customer != nil {
		s.index = "invoice_customer" // the more selective one
		s.and("customer_id = ?", int64(*f.Customer))
	}
	if f.Currency != nil {
		s.and("currency = ?", *f.Currency)
	}
	s.created(f.CreatedAfter, f.CreatedBefore)
	return s
}
