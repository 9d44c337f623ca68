package cellfsm

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

// maxLooked is how many rows one page looks at, where a filter is in no index and
// the page does not fill before: the most that a page costs, whatever the tenant
// holds (DESIGN.md has what it was measured to be).
const maxLooked = 1000

// selection builds a list's statement. The texts come from the program alone;
// values are always bound. There are few distinct texts, so a connection's
// cache of prepared statements stays small.
type selection struct {
	table string
	index string // the one to walk; "" is the primary key
	where []string
	args  []any

	// What the index does not know is asked of each row that is walked.
	fits     []string
	fitsArgs []any

	// The ids to walk: one bound on each side, whether it comes from a time or from
	// the page before. SQLite would seek to one of two and walk to the other.
	from, below int64
}

func selectFrom(table string, t tenant.ID) *selection {
	return &selection{table: table, where: []string{"tenant_id = ?"}, args: []any{string(t)}, from: 1, below: math.MaxInt64}
}

func (s *selection) and(condition string, arg any) {
	s.where = append(s.where, condition)
	s.args = append(s.args, arg)
}

// fit is a condition that the index walked may not know.
func (s *selection) fit(condition string, arg any) {
	s.fits = append(s.fits, condition)
	s.fitsArgs = append(s.fitsArgs, arg)
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
		s.from = first
	}
	if before != nil {
		first, err := s.first(c, func(at int64) bool { return at >= *before })
		if err != nil {
			return err
		}
		s.below = first
	}
	return nil
}

// first is the lowest id whose creation time is late, or the next id if none is.
func (s *selection) first(c *store.Conn, late func(at int64) bool) (id int64, err error) {
	last := int64(0)
	if _, err := c.One("SELECT coalesce(max("+s.table+"_id), 0) FROM "+s.table+" WHERE tenant_id = ?",
		func(r *store.Row) error { last = r.ColumnInt64(0); return nil }, s.args[0]); err != nil {
		return 0, err
	}
	n := sort.Search(int(last), func(i int) bool {
		if err != nil {
			return true
		}
		var is, found bool
		found, err = c.One("SELECT created_at FROM "+s.table+" WHERE tenant_id = ? AND "+s.table+"_id = ?",
			func(r *store.Row) error { is = late(r.ColumnInt64(0)); return nil }, s.args[0], int64(i)+1)
		if err == nil && !found {
			err = fmt.Errorf("%s %d of %d is missing", s.table, i+1, last)
		}
		return is
	})
	return int64(n) + 1, err
}

// behind leaves out what the pages before have walked; 0 is the beginning.
func (s *selection) behind(o Order, id int64) {
	switch {
	case id == 0:
	case o.Descending:
		s.below = min(s.below, id)
	default:
		s.from = max(s.from, id+1)
	}
}

// statement walks an index that has the rows in order of id, so that a page
// costs what it looks at: without INDEXED BY the planner, which knows nothing of
// how selective a filter is, would walk the table. The last column says whether
// the row fits.
func (s *selection) statement(columns string, o Order, limit int) (string, []any) {
	fits, from, direction := "1", s.table, " ASC"
	if len(s.fits) > 0 {
		fits = strings.Join(s.fits, " AND ")
	}
	if s.index != "" {
		from += " INDEXED BY " + s.index
	}
	if o.Descending {
		direction = " DESC"
	}
	where, args := s.where, append(slices.Clone(s.fitsArgs), s.args...)
	if s.from > 1 {
		where, args = append(where, s.table+"_id >= ?"), append(args, s.from)
	}
	if s.below < math.MaxInt64 {
		where, args = append(where, s.table+"_id < ?"), append(args, s.below)
	}
	return "SELECT " + columns + ", " + fits + " FROM " + from + " WHERE " + strings.Join(where, " AND ") +
		" ORDER BY " + s.table + "_id" + direction + " LIMIT ?", append(args, limit)
}

var errPageEnds = errors.New("the page ends here")

// page reads the rows that fit, at most limit of them, and says behind which id the
// list goes on; 0 is its end. A page ends when it is full or has looked at enough,
// so it may be short, and even empty, while the list goes on. The first column is
// the id.
func page[Row any](c *store.Conn, s *selection, columns string, scan func(*store.Row) Row, o Order, limit int) (rows []Row, next int64, err error) {
	most := limit
	if len(s.fits) > 0 {
		most = max(limit, maxLooked)
	}
	sql, args := s.statement(columns, o, most+1) // one more tells whether there is more
	looked, last := 0, int64(0)
	err = c.Query(sql, func(r *store.Row) error {
		fits := r.ColumnBool(r.ColumnCount() - 1)
		if looked == most || fits && len(rows) == limit {
			next = last
			return errPageEnds
		}
		if fits {
			rows = append(rows, scan(r))
		}
		looked, last = looked+1, r.ColumnInt64(0)
		return nil
	}, args...)
	if errors.Is(err, errPageEnds) {
		err = nil
	}
	return rows, next, err
}

// ListCustomers reads at most limit customers behind the one given; 0 is the
// beginning. The list goes on behind next; 0 is its end.
func ListCustomers(c *store.Conn, t tenant.ID, f CustomerFilter, o Order, behind CustomerID, limit int) (rows []Customer, next CustomerID, err error) {
	s := selectCustomers(t, f)
	if err := s.created(c, f.CreatedAfter, f.CreatedBefore); err != nil {
		return nil, 0, err
	}
	s.behind(o, int64(behind))
	rows, end, err := page(c, s, customerColumns, scanCustomer, o, limit)
	return rows, CustomerID(end), err
}

// ListInvoices reads at most limit invoices behind the one given; 0 is the
// beginning. The list goes on behind next, which may be further than the last
// invoice of the page; 0 is its end.
func ListInvoices(c *store.Conn, t tenant.ID, f InvoiceFilter, o Order, behind InvoiceID, limit int) (rows []Invoice, next InvoiceID, err error) {
	s := selectInvoices(t, f)
	if err := s.created(c, f.CreatedAfter, f.CreatedBefore); err != nil {
		return nil, 0, err
	}
	s.behind(o, int64(behind))
	rows, end, err := page(c, s, invoiceColumns, scanInvoice, o, limit)
	return rows, InvoiceID(end), err
}

func selectCustomers(t tenant.ID, f CustomerFilter) *selection {
	s := selectFrom("customer", t)
	if f.Reference != nil {
		s.index = "customer_reference" // at most one row
		s.and("reference = ?", *f.Reference)
	}
	return s
}

// selectInvoices walks one index, that of the customer before that of the status: a
// customer has few invoices and a status has many. The rest is asked of each row.
func selectInvoices(t tenant.ID, f InvoiceFilter) *selection {
	s := selectFrom("invoice", t)
	if f.Customer != nil {
		s.index = "invoice_customer"
		s.and("customer_id = ?", int64(*f.Customer))
	}
	switch {
	case f.Status == nil:
	case s.index == "":
		s.index = "invoice_status"
		s.and("status = ?", string(*f.Status))
	default:
		s.fit("status = ?", string(*f.Status))
	}
	if f.Currency != nil {
		s.fit("currency = ?", *f.Currency)
	}
	return s
}
