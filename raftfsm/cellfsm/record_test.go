package cellfsm_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func ptr[T any](v T) *T { return &v }

func invoiceFields(customer cellfsm.CustomerID, amount int64) cellfsm.InvoiceFields {
	return cellfsm.InvoiceFields{Customer: customer, Amount: amount, Currency: "USD", Exponent: 2}
}

func result[T any](t *testing.T, out raftfsm.Applied) (v T) {
	t.Helper()
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	if err := out.Into(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (r *replica) customer(name, reference string) cellfsm.Customer {
	r.t.Helper()
	f := cellfsm.CustomerFields{Name: name}
	if reference != "" {
		f.Reference = &reference
	}
	return result[cellfsm.Customer](r.t, r.must(cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: f}))
}

func (r *replica) invoice(body cellfsm.CreateInvoice) cellfsm.Invoice {
	r.t.Helper()
	return result[cellfsm.Invoice](r.t, r.must(cellfsm.CreateInvoiceNumber, testUID, 1, body))
}

func (r *replica) view(fn func(*store.Conn) error) {
	r.t.Helper()
	f, release, err := r.space.Acquire(string(testUID))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	if err := f.View(fn); err != nil {
		r.t.Fatal(err)
	}
}

func TestCustomer(t *testing.T) {
	r := newCell(t)
	made := r.customer("Łódź", "R1")
	if made.ID != 1 || made.Version != 1 || made.CreatedAt != 3000 {
		t.Fatalf("%+v", made)
	}
	update := cellfsm.UpdateCustomer{ID: 1, Expected: 1, Fields: cellfsm.CustomerFields{Name: "B", Email: ptr("b@example.org"), Country: ptr("Brazil")}}
	changed := result[cellfsm.Customer](t, r.must(cellfsm.UpdateCustomerNumber, testUID, 1, update))
	want := cellfsm.Customer{ID: 1, Version: 2, Fields: update.Fields, CreatedAt: 3000, UpdatedAt: 4000}
	if diff := gocmp.Diff(want, changed); diff != "" {
		t.Error(diff)
	}
	r.view(func(c *store.Conn) error {
		row, found, err := cellfsm.ReadCustomer(c, testID, 1)
		if !found || !gocmp.Equal(row, want) {
			t.Errorf("%+v %t", row, found)
		}
		_, foreign, err2 := cellfsm.ReadCustomer(c, "T8", 1)
		if foreign || err2 != nil {
			t.Errorf("read under another tenant's id: %t, %v", foreign, err2)
		}
		return err
	})

	e := r.refused("version-mismatch", command(t, cellfsm.UpdateCustomerNumber, testUID, 1, update))
	if e.Fields["currentVersion"] != int64(2) {
		t.Errorf("%+v", e)
	}
	update.ID = 2
	r.refused("not-found", command(t, cellfsm.UpdateCustomerNumber, testUID, 1, update))
	r.customer("C", "R1") // free again: the update cleared it
	r.refused("reference-taken", command(t, cellfsm.CreateCustomerNumber, testUID, 1,
		cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "D", Reference: ptr("R1")}}))
	r.refused("reference-taken", command(t, cellfsm.UpdateCustomerNumber, testUID, 1,
		cellfsm.UpdateCustomer{ID: 1, Expected: 2, Fields: cellfsm.CustomerFields{Name: "D", Reference: ptr("R1")}}))
	if next := r.customer("E", ""); next.ID != 3 {
		t.Errorf("a refusal used up an id: %d", next.ID)
	}
}

func TestInvoice(t *testing.T) {
	r := newCell(t)
	r.customer("A", "")
	full := cellfsm.CreateInvoice{Fields: invoiceFields(1, 1250), Status: cellfsm.Draft, Internal: &cellfsm.Internal{CostMinor: ptr(int64(7)), Note: ptr("n")}}
	full.Fields.Reference, full.Fields.Memo, full.Fields.IssuedAt = ptr("I1"), ptr("m"), ptr(int64(-1))
	made := r.invoice(full)
	if made.ID != 1 || made.Version != 1 || !gocmp.Equal(made.Fields, full.Fields) || !gocmp.Equal(made.Internal, full.Internal) {
		t.Fatalf("%+v", made)
	}

	// Status and the internal part stay when they are left out, the rest goes.
	update := cellfsm.UpdateInvoice{ID: 1, Expected: 1, Fields: invoiceFields(1, 0)}
	changed := result[cellfsm.Invoice](t, r.must(cellfsm.UpdateInvoiceNumber, testUID, 1, update))
	want := cellfsm.Invoice{ID: 1, Version: 2, Fields: invoiceFields(1, 0), Status: cellfsm.Draft, Internal: full.Internal, CreatedAt: made.CreatedAt, UpdatedAt: 5000}
	if diff := gocmp.Diff(want, changed); diff != "" {
		t.Error(diff)
	}
	r.view(func(c *store.Conn) error {
		row, found, err := cellfsm.ReadInvoice(c, testID, 1)
		if !found || !gocmp.Equal(row, want) {
			t.Errorf("stored %+v %t", row, found)
		}
		return err
	})
	update.Expected, update.Status, update.Internal = 2, ptr(cellfsm.Issued), &cellfsm.Internal{}
	cleared := result[cellfsm.Invoice](t, r.must(cellfsm.UpdateInvoiceNumber, testUID, 1, update))
	if cleared.Internal != nil || cleared.Status != cellfsm.Issued || cleared.Version != 3 {
		t.Errorf("%+v", cleared)
	}

	update.Expected, update.Status = 3, ptr(cellfsm.Draft)
	e := r.refused("invalid-transition", command(t, cellfsm.UpdateInvoiceNumber, testUID, 1, update))
	if e.Fields["from"] != "issued" || e.Fields["to"] != "draft" {
		t.Errorf("%+v", e)
	}
	update.Status, update.Fields.Customer = nil, 2
	r.refused("unknown-customer", command(t, cellfsm.UpdateInvoiceNumber, testUID, 1, update))
	r.refused("unknown-customer", command(t, cellfsm.CreateInvoiceNumber, testUID, 1, cellfsm.CreateInvoice{Fields: invoiceFields(2, 1), Status: cellfsm.Draft}))
	update.ID = 9
	r.refused("not-found", command(t, cellfsm.UpdateInvoiceNumber, testUID, 1, update))
	r.invoice(cellfsm.CreateInvoice{Fields: full.Fields, Status: cellfsm.Paid}) // I1 is free again
	r.refused("reference-taken", command(t, cellfsm.CreateInvoiceNumber, testUID, 1, full))
}

func TestTransitions(t *testing.T) {
	allowed := map[cellfsm.Status][]cellfsm.Status{
		cellfsm.Draft:  {cellfsm.Draft, cellfsm.Issued, cellfsm.Void},
		cellfsm.Issued: {cellfsm.Issued, cellfsm.Paid, cellfsm.Void},
		cellfsm.Paid:   {cellfsm.Paid},
		cellfsm.Void:   {cellfsm.Void},
	}
	for _, from := range cellfsm.Statuses() {
		for _, to := range cellfsm.Statuses() {
			if got, want := from.May(to), slices.Contains(allowed[from], to); got != want {
				t.Errorf("%s to %s: %t", from, to, got)
			}
		}
	}
}

func TestEveryEffectLeavesOneOutboxAndOneAuditRow(t *testing.T) {
	r := newCell(t)
	r.customer("A", "")
	r.must(cellfsm.UpdateCustomerNumber, testUID, 1, cellfsm.UpdateCustomer{ID: 1, Expected: 1, Fields: cellfsm.CustomerFields{Name: "B"}})
	r.invoice(cellfsm.CreateInvoice{Fields: invoiceFields(1, 5), Status: cellfsm.Draft})
	r.must(cellfsm.UpdateInvoiceNumber, testUID, 1, cellfsm.UpdateInvoice{ID: 1, Expected: 1, Fields: invoiceFields(1, 6)})
	for table, columns := range map[string]string{
		"outbox": "sequence || ' ' || event || ' ' || object_id || ' ' || version",
		"audit":  "sequence || ' ' || event || ' ' || object_id || ' ' || version",
	} {
		var got []string
		r.view(func(c *store.Conn) error {
			return c.Query("SELECT "+columns+" FROM "+table+" ORDER BY sequence", func(row *store.Row) error {
				got = append(got, row.ColumnText(0))
				return nil
			})
		})
		want := []string{"1 customer.created 1 1", "2 customer.updated 1 2", "3 invoice.created 1 1", "4 invoice.updated 1 2"}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", table, diff)
		}
	}
	if _, ctl := r.digest(testUID); ctl.Sequence != 4 || ctl.Applied != 6 {
		t.Errorf("%+v", ctl)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	r := newCell(t)
	c := command(t, cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}})
	c.At = 9_000_000
	r.do(c)
	c.At = 5
	if got := result[cellfsm.Customer](t, r.do(c)); got.CreatedAt != 9_000_000 {
		t.Errorf("created at %d", got.CreatedAt)
	}
}

func TestIdempotency(t *testing.T) {
	r := newCell(t)
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(secondU, "T8", 1))
	create := func(target tenant.UID, actor, operation, key string, hash byte, name string) raftfsm.Command {
		c := command(t, cellfsm.CreateCustomerNumber, target, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: name}})
		c.Actor = actor
		c.Key = &raftfsm.Key{Actor: actor, Operation: operation, Key: key, Hash: [32]byte{hash}}
		return c
	}
	first := result[cellfsm.Customer](t, r.do(create(testUID, "U7", "createCustomer", "k", 1, "A")))
	r.must(cellfsm.UpdateCustomerNumber, testUID, 1, cellfsm.UpdateCustomer{ID: 1, Expected: 1, Fields: cellfsm.CustomerFields{Name: "later"}})

	before, ctl := r.digest(testUID)
	out := r.do(create(testUID, "U7", "createCustomer", "k", 1, "A"))
	if again := result[cellfsm.Customer](t, out); !out.Replayed || !gocmp.Equal(again, first) {
		t.Errorf("replay %+v, first answer %+v", again, first)
	}
	if after, now := r.digest(testUID); after != before || now != ctl {
		t.Error("the replay left a trace")
	}
	r.refused("idempotency-key-reused", create(testUID, "U7", "createCustomer", "k", 2, "B"))
	for name, c := range map[string]raftfsm.Command{
		"actor":     create(testUID, "U9", "createCustomer", "k", 2, "B"),
		"operation": create(testUID, "U7", "other", "k", 2, "B"),
		"key":       create(testUID, "U7", "createCustomer", "K", 2, "B"),
		"tenant":    create(secondU, "U7", "createCustomer", "k", 2, "B"),
	} {
		if out := r.do(c); out.Err != nil || out.Replayed {
			t.Errorf("another %s is not independent: %+v", name, out)
		}
	}
	// A refusal is not recorded: the same key may succeed later.
	taken := create(testUID, "U7", "createCustomer", "k2", 3, "A")
	taken.Epoch = 9
	r.refused("placement-changed", taken)
	taken.Epoch = 1
	if out := r.do(taken); out.Err != nil || out.Replayed {
		t.Errorf("%+v", out)
	}
}

// TestDeterminism feeds one random log to a replica in single entries and to
// another in entries of many commands, with a restart and a replay from the
// beginning in the middle: the content is equal.
func TestDeterminism(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := newCell(t)
	for range 300 {
		one.do(randomCommand(t, random))
	}
	two := openReplica(t, t.TempDir())
	feed := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := two.apply.Apply(uint64(i+1), one.log[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed(0, 150)
	two.close()
	two = openReplica(t, two.dir)
	feed(0, len(one.log))
	a, ctlA := one.digest(testUID)
	b, ctlB := two.digest(testUID)
	if a != b || ctlA != ctlB {
		t.Errorf("replicas differ: %+v and %+v", ctlA, ctlB)
	}
	if ctlA.Sequence < 100 {
		t.Errorf("only %d commands had an effect", ctlA.Sequence)
	}
	a, _ = one.digest("")
	if b, _ = two.digest(""); a != b {
		t.Error("cell.db differs")
	}
}

func randomCommand(t *testing.T, random *rand.Rand) raftfsm.Command {
	reference := func() *string {
		if random.IntN(2) == 0 {
			return nil
		}
		return ptr(fmt.Sprint("r", random.IntN(40)))
	}
	fields := func() cellfsm.InvoiceFields {
		f := invoiceFields(cellfsm.CustomerID(1+random.IntN(30)), random.Int64N(1e6))
		f.Reference = reference()
		return f
	}
	status := cellfsm.Statuses()[random.IntN(4)]
	var c raftfsm.Command
	switch random.IntN(4) {
	case 0:
		c = command(t, cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A", Reference: reference()}})
	case 1:
		c = command(t, cellfsm.UpdateCustomerNumber, testUID, 1, cellfsm.UpdateCustomer{
			ID: cellfsm.CustomerID(1 + random.IntN(30)), Expected: cellfsm.Version(1 + random.IntN(3)), Fields: cellfsm.CustomerFields{Name: "B", Reference: reference()}})
	case 2:
		c = command(t, cellfsm.CreateInvoiceNumber, testUID, 1, cellfsm.CreateInvoice{Fields: fields(), Status: status})
	default:
		c = command(t, cellfsm.UpdateInvoiceNumber, testUID, 1, cellfsm.UpdateInvoice{
			ID: cellfsm.InvoiceID(1 + random.IntN(30)), Expected: cellfsm.Version(1 + random.IntN(3)), Fields: fields(), Status: &status})
	}
	if random.IntN(3) == 0 {
		c.Key = &raftfsm.Key{Actor: "U7", Operation: "x", Key: fmt.Sprint(random.IntN(60)), Hash: [32]byte{byte(random.IntN(2))}}
	}
	if random.IntN(10) == 0 {
		c.Epoch = 2
	}
	return c
}

// naive selects and orders like a list, from all rows.
func naive(rows []cellfsm.Invoice, f cellfsm.InvoiceFilter, descending bool) (out []cellfsm.Invoice) {
	for _, row := range rows {
		if (f.Customer == nil || row.Fields.Customer == *f.Customer) && (f.Status == nil || row.Status == *f.Status) &&
			(f.Currency == nil || row.Fields.Currency == *f.Currency) &&
			(f.CreatedAfter == nil || row.CreatedAt > *f.CreatedAfter) && (f.CreatedBefore == nil || row.CreatedAt < *f.CreatedBefore) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b cellfsm.Invoice) int {
		d := cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
		if descending {
			d = -d
		}
		return d
	})
	return out
}

func TestLists(t *testing.T) {
	r := newCell(t)
	random := rand.New(rand.NewPCG(3, 4))
	r.customer("A", "R1")
	r.customer("B", "")
	var all []cellfsm.Invoice
	at := int64(10_000)
	for range 120 {
		if random.IntN(3) == 0 {
			at += 10
		}
		clock := at - int64(random.IntN(2))*5000 // now and then a leader's clock is behind
		f := invoiceFields(cellfsm.CustomerID(1+random.IntN(2)), 1)
		f.Currency = []string{"USD", "EUR"}[random.IntN(2)]
		c := command(t, cellfsm.CreateInvoiceNumber, testUID, 1, cellfsm.CreateInvoice{Fields: f, Status: cellfsm.Statuses()[random.IntN(4)]})
		c.At = clock
		all = append(all, result[cellfsm.Invoice](t, r.do(c)))
	}
	for i := range 32 {
		var f cellfsm.InvoiceFilter
		if i&1 != 0 {
			f.Customer = ptr(cellfsm.CustomerID(1))
		}
		if i&2 != 0 {
			f.Status = ptr(cellfsm.Paid)
		}
		if i&4 != 0 {
			f.Currency = ptr("EUR")
		}
		if i&8 != 0 {
			f.CreatedAfter, f.CreatedBefore = ptr(int64(10_050)), ptr(at)
		}
		o := cellfsm.Order{Descending: i&16 != 0}
		var got []cellfsm.Invoice
		r.view(func(c *store.Conn) error {
			var behind cellfsm.InvoiceID
			for {
				page, next, err := cellfsm.ListInvoices(c, testID, f, o, behind, 7)
				if err != nil {
					return err
				}
				got = append(got, page...)
				if len(page) > 7 || next != 0 && len(page) < 7 {
					t.Errorf("filter %d: a page of %d goes on behind %d", i, len(page), next)
				}
				if behind = next; next == 0 {
					return nil
				}
			}
		})
		if diff := gocmp.Diff(naive(all, f, o.Descending), got); diff != "" {
			t.Fatalf("filter %d: %s", i, diff)
		}
	}
	r.view(func(c *store.Conn) error {
		rows, next, err := cellfsm.ListCustomers(c, testID, cellfsm.CustomerFilter{Reference: ptr("R1")}, cellfsm.Order{Descending: true}, 0, 1)
		if len(rows) != 1 || rows[0].ID != 1 || next != 0 {
			t.Errorf("%+v, %d", rows, next)
		}
		rows, next, err2 := cellfsm.ListCustomers(c, testID, cellfsm.CustomerFilter{CreatedAfter: ptr(int64(0))}, cellfsm.Order{}, 1, 10)
		if len(rows) != 1 || rows[0].ID != 2 || next != 0 || err2 != nil {
			t.Errorf("%+v, %d, %v", rows, next, err2)
		}
		return err
	})
}

func TestParseStatus(t *testing.T) {
	for s, want := range map[string]bool{"draft": true, "void": true, "Draft": false, "": false, "open": false} {
		if _, ok := cellfsm.ParseStatus(s); ok != want {
			t.Errorf("%q: %t", s, ok)
		}
	}
}

func TestAdmitKnowsEveryState(t *testing.T) {
	for state := range tenant.State(6) {
		err := cellfsm.Admit(store.Control{CellKey: testKey, Epoch: 1, State: state}, testKey, 1)
		known := state >= tenant.Importing && state <= tenant.Retired
		if known && (err == nil) != (state == tenant.Active) || !known && fault.Of(err) != fault.Internal {
			t.Errorf("state %d: %v", state, err)
		}
	}
	if err := cellfsm.Admit(store.Control{Epoch: 1, State: tenant.Active}, "", 1); fault.Of(err) != fault.Moved {
		t.Errorf("no key at all: %v", err)
	}
}
