package cellfsm_test

import (
	"fmt"
	"slices"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/steps"
)

// history is a tenant whose past was written by the row, not by the command: all
// invoices are drafts of one customer in one currency, the worst for each filter that
// leaves them out.
type history struct{ *replica }

// past is how many microseconds lie between two invoices.
const past = 10

func newHistory(t *testing.T, invoices int) history {
	t.Helper()
	r := newCell(t)
	for range 2 {
		r.customer("A", "")
	}
	h := history{r}
	h.insert(invoices,
		`INSERT INTO customer SELECT 'T7', n + 2, 1, 'A', 'C' || n, NULL, NULL, 10 * n, 10 * n FROM`,
		`INSERT INTO invoice SELECT 'T7', n, 1, 1, 5, 'USD', 2, 'I' || n, 'draft', NULL, NULL, NULL, NULL, 10 * n, 10 * n FROM`)
	return h
}

// numbered ends a statement that inserts a row for each number n up to a bound.
const numbered = " (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT ?) SELECT n FROM s)"

// insert runs statements that are numbered.
func (h history) insert(rows int, statements ...string) {
	h.t.Helper()
	f, release, err := h.space.Acquire(string(testUID))
	if err != nil {
		h.t.Fatal(err)
	}
	defer release()
	err = f.Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error {
			for _, sql := range statements {
				if _, err := tx.Exec(sql+numbered, rows); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// cost is how many steps fn takes.
func (h history) cost(fn func(c *store.Conn) error) (n int64) {
	h.t.Helper()
	h.view(func(c *store.Conn) error {
		before := steps.Of(c)
		err := fn(c)
		n = steps.Of(c) - before
		return err
	})
	return n
}

// written is how many steps the writer has taken so far: a View is on its connection
// while nothing else reads.
func (h history) written() (n int64) {
	h.t.Helper()
	h.view(func(writer *store.Conn) error { n = steps.Of(writer); return nil })
	return n
}

// sizes are where the bound on rows looked at has long been met, and ten times that.
func sizes() []int { return []int{2_200, 22_000} }

// growth is what a list may cost more for a tenant of ten times the size: the
// look-ups by which two bounds of time are found, four more for each.
const growth = 8 * 12

// pageSteps bounds what a page costs: 1,000 rows looked at, at 25 steps each and more where two
// filters are asked of each.
const pageSteps = 1000 * 31

// TestListsDoNotCostMoreWithHistory has a page of every combination of filters, in
// both directions, at the beginning and deep in, where everything matches or nothing.
func TestListsDoNotCostMoreWithHistory(t *testing.T) {
	costs := make(map[string][]int64)
	for _, size := range sizes() {
		h := newHistory(t, size)
		for i := range 1 << 7 {
			var f cellfsm.InvoiceFilter
			var o cellfsm.Order
			var behind cellfsm.InvoiceID
			some := func(bit int) bool { return i>>bit&1 != 0 }
			rare := some(5)
			if some(0) {
				f.Customer = ptr(cellfsm.CustomerID(1))
			}
			if some(1) {
				f.Status = ptr(cellfsm.Draft)
			}
			if some(2) {
				f.Currency = ptr("USD")
			}
			if some(3) {
				f.CreatedAfter, f.CreatedBefore = ptr(int64(past)), ptr(int64((size-5)*past))
			}
			if rare { // than the last filter that there is
				switch {
				case f.Currency != nil:
					*f.Currency = "CHF"
				case f.Status != nil:
					*f.Status = cellfsm.Void
				case f.Customer != nil:
					*f.Customer = cellfsm.CustomerID(3)
				}
			}
			o.Descending = some(4)
			if some(6) {
				behind = cellfsm.InvoiceID(size / 2)
			}
			name := fmt.Sprintf("customer %t, status %t, currency %t, times %t, descending %t, rare %t, deep %t",
				some(0), some(1), some(2), some(3), some(4), rare, some(6))
			costs[name] = append(costs[name], h.cost(func(c *store.Conn) error {
				_, _, err := cellfsm.ListInvoices(c, testID, f, o, behind, 50)
				return err
			}))
		}
		for name, f := range map[string]cellfsm.CustomerFilter{
			"all": {}, "by reference": {Reference: ptr("C7")}, "times": {CreatedAfter: ptr(int64(past)), CreatedBefore: ptr(int64((size - 5) * past))},
			"reference and times": {Reference: ptr("C7"), CreatedAfter: ptr(int64((size - 5) * past))},
		} {
			for _, o := range []cellfsm.Order{{}, {Descending: true}} {
				for _, behind := range []int{0, size / 2} {
					name := fmt.Sprintf("customers, %s, %+v, deep %t", name, o, behind > 0)
					costs[name] = append(costs[name], h.cost(func(c *store.Conn) error {
						_, _, err := cellfsm.ListCustomers(c, testID, f, o, cellfsm.CustomerID(behind), 50)
						return err
					}))
				}
			}
		}
	}
	var dearest int64
	for name, c := range costs {
		if small, large := c[0], c[1]; large > small+growth || large > pageSteps {
			t.Errorf("%s: %d steps, and %d with ten times the history", name, small, large)
		}
		dearest = max(dearest, c[1])
	}
	t.Logf("%d kinds of page, the dearest of %d steps", len(costs), dearest)
}

// TestShortPages walks lists whose filters leave out most of what is looked at.
func TestShortPages(t *testing.T) {
	h := newHistory(t, sizes()[0])
	for _, id := range []int64{1, 1000, 1001, 2199} {
		r := result[cellfsm.Invoice](t, h.must(cellfsm.UpdateInvoiceNumber, testUID, 1, cellfsm.UpdateInvoice{ID: cellfsm.InvoiceID(id), Expected: 1,
			Fields: cellfsm.InvoiceFields{Customer: 1, Currency: "CHF", Exponent: 2}}))
		if r.Version != 2 {
			t.Fatalf("%+v", r)
		}
	}
	for _, f := range []cellfsm.InvoiceFilter{
		{Currency: ptr("CHF")}, {Currency: ptr("CHF"), Customer: ptr(cellfsm.CustomerID(1))},
		{Currency: ptr("CHF"), CreatedAfter: ptr(int64(0)), CreatedBefore: ptr(int64(1 << 40))},
	} {
		for _, descending := range []bool{false, true} {
			for _, limit := range []int{1, 2, 4, 50} {
				var got []int64
				pages, short := 0, 0
				h.view(func(c *store.Conn) error {
					for behind := cellfsm.InvoiceID(0); ; pages++ {
						rows, next, err := cellfsm.ListInvoices(c, testID, f, cellfsm.Order{Descending: descending}, behind, limit)
						for _, row := range rows {
							got = append(got, int64(row.ID))
						}
						if next == 0 || err != nil {
							return err
						}
						if next == behind || len(rows) > limit {
							t.Fatalf("%d rows, and on from %d behind %d", len(rows), behind, next)
						}
						if len(rows) < limit {
							short++
						}
						behind = next
					}
				})
				if descending {
					slices.Reverse(got)
				}
				if !slices.Equal(got, []int64{1, 1000, 1001, 2199}) {
					t.Errorf("limit %d, descending %t: %v in %d pages", limit, descending, got, pages+1)
				}
				if short == 0 && limit == 50 {
					t.Errorf("limit %d: no page was short, so nothing is shown", limit)
				}
			}
		}
	}
}

// TestWritesDoNotCostMoreWithHistory counts the steps of every kind of command, with
// its key, and of the ways in which one is refused.
func TestWritesDoNotCostMoreWithHistory(t *testing.T) {
	costs := make(map[string][]int64)
	for _, size := range []int{300, 3000} {
		h := newHistory(t, size)
		h.insert(size, `INSERT INTO audit SELECT 'T7', -n, 0, 'U7', 'invoice.created', n, 1, 1 FROM`,
			`INSERT INTO idempotency SELECT 'T7', -n, randomblob(16), randomblob(32), randomblob(150), 0 FROM`)
		fields := cellfsm.InvoiceFields{Customer: 1, Amount: 5, Currency: "USD", Exponent: 2}
		referring := func(reference string) cellfsm.InvoiceFields {
			f := fields
			f.Reference = &reference
			return f
		}
		last := cellfsm.InvoiceID(size)
		keys := 0
		for range 2 { // the first of each opens the file and prepares statements
			for _, w := range []struct {
				name, refusal string
				number        raftfsm.Number
				body          any
			}{
				{"create", "", cellfsm.CreateInvoiceNumber, cellfsm.CreateInvoice{Fields: fields, Status: cellfsm.Draft}},
				{"create with a reference", "", cellfsm.CreateInvoiceNumber, cellfsm.CreateInvoice{Fields: referring(fmt.Sprint("new", keys)), Status: cellfsm.Draft}},
				{"create under a taken reference", "reference-taken", cellfsm.CreateInvoiceNumber, cellfsm.CreateInvoice{Fields: referring("I7"), Status: cellfsm.Draft}},
				{"create for nobody", "unknown-customer", cellfsm.CreateInvoiceNumber, cellfsm.CreateInvoice{Fields: cellfsm.InvoiceFields{Customer: 1 << 40, Currency: "USD"}, Status: cellfsm.Draft}},
				{"update", "", cellfsm.UpdateInvoiceNumber, cellfsm.UpdateInvoice{ID: last - cellfsm.InvoiceID(keys), Expected: 1, Fields: referring(fmt.Sprint("newer", keys)), Status: ptr(cellfsm.Void)}},
				{"update of an old version", "version-mismatch", cellfsm.UpdateInvoiceNumber, cellfsm.UpdateInvoice{ID: 9, Expected: 9, Fields: fields}},
				{"create customer", "", cellfsm.CreateCustomerNumber, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "B", Reference: ptr(fmt.Sprint("c", keys))}}},
				{"update customer", "", cellfsm.UpdateCustomerNumber, cellfsm.UpdateCustomer{ID: cellfsm.CustomerID(size - keys), Expected: 1, Fields: cellfsm.CustomerFields{Name: "B"}}},
				{"prune", "", cellfsm.PruneNumber, cellfsm.Prune{Keys: 1, Audit: 1, Limit: 100}},
			} {
				keys++
				c := command(t, w.number, testUID, 1, w.body)
				if w.number != cellfsm.PruneNumber {
					c.Key = &raftfsm.Key{Actor: "U7", Operation: "x", Key: fmt.Sprint(keys)}
				}
				before := h.written()
				out := h.do(c)
				if e := fault.As(out.Err); (e == nil) != (w.refusal == "") || e != nil && e.Slug != w.refusal {
					t.Fatalf("%s: %v", w.name, out.Err)
				}
				costs[w.name] = append(costs[w.name], h.written()-before)
			}
		}
	}
	for name, c := range costs {
		small, large := c[1], c[3]
		if large > small+5 || small <= 0 {
			t.Errorf("%s: %d steps, and %d with ten times the history", name, small, large)
		}
		t.Logf("%s: %d steps", name, large)
	}
}
