package cellfsm

import (
	"fmt"
	"sort"
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

// created turns bounds of time into bounds of id. Ids have no gaps and creation
// times never fall from one id to the next, so a bound is found by halving, in
// some twenty look-ups among a million rows and without an index to keep.
func (s *selection) created(c *store.Conn, after, before *int64) error {
	if after != nil {
		first, err := s.first(c, func(at int64) bool { return at > *after })
		if err != nil {
			return err
		}
		s.and(s.table+"_id >= ?", first)
	}
	if before != nil {
		first, err := s.first(c, func(at int64) bool { return at >= *before })
		if err != nil {
			return err
		}
		s.and(s.table+"_id < ?", first)
	}
	return nil
}

// first is the lowest id whose creation time is late, or the next id if none is.
func (s *selection) first(c *store.Conn, late func(at int64) bool) (id int64, err error) {
	last := int64(0)
	if _, err := c.One("SELECT coalesce(max("+s.table+"_id), 0) FROM "+s.table+" WHERE tenant_id = ?",
		func(r *store.Row) error { last = r.ColumnInt64(0); return nil }, string(s.tenant)); err != nil {
		return 0, err
	}
	n := sort.Search(int(last), func(i int) bool {
		if err != nil {
			return true
		}
		var is, found bool
		found, err = c.One("SELECT created_at FROM "+s.table+" WHERE tenant_id = ? AND "+s.table+"_id = ?",
			func(r *store.Row) error { is = late(r.ColumnInt64(0)); return nil }, string(s.tenant), int64(i)+1)
		if err == nil && !found {
			err = fmt.Errorf("%s %d of %d is missing", s.table, i+1, last)
		}
		return is
	})
	return int64(n) + 1, err
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
	if err := s.created(c, f.CreatedAfter, f.CreatedBefore); err != nil {
		return nil, err
	}
	var rows []Customer
	sql, args := s.statement(customerColumns, o, int64(behind), limit)
	err := c.Query(sql, func(r *store.Row) error { rows = append(rows, scanCustomer(r)); return nil }, args...)
	return rows, err
}

// ListInvoices reads at most limit invoices behind the one given; 0 is the
// beginning.
func ListInvoices(c *store.Conn, t tenant.ID, f InvoiceFilter, o Order, behind InvoiceID, limit int) ([]Invoice, error) {
	s := selectInvoices(t, f)
	if err := s.created(c, f.CreatedAfter, f.CreatedBefore); err != nil {
		return nil, err
	}
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
	return s
}
