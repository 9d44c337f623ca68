package cellfsm

import (
	"strings"

	"celld/store"
	"celld/store/tenant"
)

// Order is the order of a list: by id, or by creation time and id. Both keys
// never change, so a walk meets no row twice and skips none that was there when
// it began.
type Order struct {
	ByCreation bool
	Descending bool
}

// Position is a row's place in a list: the walk goes on behind it.
type Position struct {
	CreatedAt int64 // used by an order by creation only
	ID        int64
}

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
	where []string
	args  []any
}

func (s *selection) and(condition string, args ...any) {
	s.where = append(s.where, condition)
	s.args = append(s.args, args...)
}

func (s *selection) created(after, before *int64) {
	if after != nil {
		s.and("created_at > ?", *after)
	}
	if before != nil {
		s.and("created_at < ?", *before)
	}
}

func (s *selection) statement(columns, table string, o Order, behind *Position, limit int) string {
	id := table + "_id"
	direction, beyond := " ASC", " > "
	if o.Descending {
		direction, beyond = " DESC", " < "
	}
	order := id + direction
	if o.ByCreation {
		order = "created_at" + direction + ", " + order
	}
	if behind != nil && o.ByCreation {
		s.and("(created_at, "+id+")"+beyond+"(?, ?)", behind.CreatedAt, behind.ID)
	} else if behind != nil {
		s.and(id+beyond+"?", behind.ID)
	}
	s.args = append(s.args, limit)
	return "SELECT " + columns + " FROM " + table + " WHERE " + strings.Join(s.where, " AND ") + " ORDER BY " + order + " LIMIT ?"
}

// ListCustomers reads at most limit customers behind a position; nil is the
// beginning.
func ListCustomers(c *store.Conn, t tenant.ID, f CustomerFilter, o Order, behind *Position, limit int) ([]Customer, error) {
	var s selection
	s.and("tenant_id = ?", string(t))
	if f.Reference != nil {
		s.and("reference = ?", *f.Reference)
	}
	s.created(f.CreatedAfter, f.CreatedBefore)
	var rows []Customer
	err := c.Query(s.statement(customerColumns, "customer", o, behind, limit),
		func(r *store.Row) error { rows = append(rows, scanCustomer(r)); return nil }, s.args...)
	return rows, err
}

// ListInvoices reads at most limit invoices behind a position; nil is the
// beginning.
func ListInvoices(c *store.Conn, t tenant.ID, f InvoiceFilter, o Order, behind *Position, limit int) ([]Invoice, error) {
	var s selection
	s.and("tenant_id = ?", string(t))
	if f.Customer != nil {
		s.and("customer_id = ?", int64(*f.Customer))
	}
	if f.Status != nil {
		s.and("status = ?", string(*f.Status))
	}
	if f.Currency != nil {
		s.and("currency = ?", *f.Currency)
	}
	s.created(f.CreatedAfter, f.CreatedBefore)
	var rows []Invoice
	err := c.Query(s.statement(invoiceColumns, "invoice", o, behind, limit),
		func(r *store.Row) error { rows = append(rows, scanInvoice(r)); return nil }, s.args...)
	return rows, err
}

// AppliedIndex reads the last log entry with an effect in the file. Read after
// or together with rows, it is not below what they show.
func AppliedIndex(c *store.Conn) (index uint64, err error) {
	_, err = c.One("SELECT applied_index FROM tenant_control",
		func(r *store.Row) error { index = uint64(r.ColumnInt64(0)); return nil })
	return index, err
}
