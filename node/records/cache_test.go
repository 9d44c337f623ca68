package records

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is one replica of a cell with two tenants, T7 and T8, fed by the real
// apply step and read through a cache. Each tenant has customer 1 and invoices 1
// and 2.
type replica struct {
	t     testing.TB
	space *cellfsm.Space
	cache *Cache
	apply *raftfsm.Applier
	index uint64
}

const (
	cellKey = tenant.CellKey("CELLKEY")
	t7      = tenant.UID("aaaaaaaaaaaaaaaaaaaaaaaaaa")
	t8      = tenant.UID("baaaaaaaaaaaaaaaaaaaaaaaaa")
)

func ids() map[tenant.UID]tenant.ID { return map[tenant.UID]tenant.ID{t7: "T7", t8: "T8"} }

// newReplica keeps only maxOpen tenants' files open.
func newReplica(t testing.TB, size int64, maxOpen int, metrics prometheus.Registerer) *replica {
	t.Helper()
	cache, err := New(size, metrics)
	if err != nil {
		t.Fatal(err)
	}
	space, err := cellfsm.OpenSpace(t.TempDir(), maxOpen, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	space.Watch(cache)
	r := &replica{t: t, space: space, cache: cache, apply: raftfsm.NewApplier(cellfsm.Commands(space), space.Guard, space)}
	r.do(cellfsm.InitCellNumber, "", cellfsm.InitCell{Name: "C2", Key: cellKey})
	for uid, id := range ids() {
		r.do(cellfsm.ProvisionTenantNumber, "", cellfsm.ProvisionTenant{UID: uid, Tenant: id, Epoch: 1, Cell: cellKey, Secret: bytes.Repeat([]byte{7}, 32)})
		r.do(cellfsm.CreateCustomerNumber, uid, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}})
		for range 2 {
			r.do(cellfsm.CreateInvoiceNumber, uid, cellfsm.CreateInvoice{Fields: fields(1), Status: cellfsm.Draft})
		}
	}
	return r
}

func fields(amount int64) cellfsm.InvoiceFields {
	return cellfsm.InvoiceFields{Customer: 1, Amount: amount, Currency: "USD", Exponent: 2}
}

func (r *replica) do(n raftfsm.Number, uid tenant.UID, body any) {
	r.t.Helper()
	c, err := raftfsm.NewCommand(n, string(uid), body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.index++
	c.Actor, c.At = "U7", int64(r.index)
	if uid != "" {
		c.Epoch = 1
	}
	out, err := r.apply.Apply(r.index, c)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		r.t.Fatalf("command %d: %v", n, err)
	}
}

func (r *replica) update(uid tenant.UID, id cellfsm.InvoiceID, version cellfsm.Version) {
	r.t.Helper()
	r.do(cellfsm.UpdateInvoiceNumber, uid, cellfsm.UpdateInvoice{ID: id, Expected: version, Fields: fields(int64(version) + 1)})
}

// read reads an invoice's version as a node does: from the cache, else from the
// file, and remembers it. between, if set, runs between the row's reading and that.
func (r *replica) read(uid tenant.UID, id int64, a Audience, between func()) (cellfsm.Version, error) {
	if p := r.space.Presence(uid); p != nil {
		if e := r.cache.Find(Key{p.Life(), id, cellfsm.InvoiceKind, a}); e != nil {
			n, err := strconv.ParseInt(string(e.Body), 10, 64)
			return cellfsm.Version(n), err
		}
	}
	f, release, err := r.space.Acquire(string(uid))
	if err != nil {
		return 0, err
	}
	defer release()
	sequence := f.Control().Sequence
	var row cellfsm.Invoice
	if err := f.View(func(c *store.Conn) (err error) {
		row, _, err = cellfsm.ReadInvoice(c, ids()[uid], cellfsm.InvoiceID(id))
		return err
	}); err != nil {
		return 0, err
	}
	if between != nil {
		between()
	}
	e := NewEntry(strconv.AppendInt(nil, int64(row.Version), 10), row.Version)
	r.cache.Fill(r.space.Presence(uid), sequence, cellfsm.InvoiceKind, id, a, e)
	return row.Version, nil
}

func (r *replica) want(uid tenant.UID, id int64, a Audience, version cellfsm.Version) {
	r.t.Helper()
	if got, err := r.read(uid, id, a, nil); err != nil || got != version {
		r.t.Errorf("invoice %d of %s: version %d, %v; want %d", id, uid, got, err, version)
	}
}

// found is what the cache alone has.
func (r *replica) found(uid tenant.UID, kind cellfsm.Kind, id int64, a Audience) *Entry {
	return r.cache.Find(Key{r.space.Presence(uid).Life(), id, kind, a})
}

func TestTenantsAndAudiencesAreApart(t *testing.T) {
	r := newReplica(t, 1<<20, 8, nil)
	r.update(t8, 1, 1)
	r.want(t7, 1, Internal, 1)
	if r.found(t7, cellfsm.InvoiceKind, 1, Internal) == nil {
		t.Fatal("nothing was remembered")
	}
	if r.found(t7, cellfsm.InvoiceKind, 1, Public) != nil || r.found(t8, cellfsm.InvoiceKind, 1, Internal) != nil ||
		r.found(t7, cellfsm.CustomerKind, 1, Internal) != nil || r.found(t7, cellfsm.InvoiceKind, 2, Internal) != nil {
		t.Error("found under another key")
	}
	r.want(t8, 1, Internal, 2)
	r.want(t7, 1, Public, 1)
}

// TestEveryCommandForgetsWhatItChanges walks the table, so that a command that is
// added later has to be thought of here.
func TestEveryCommandForgetsWhatItChanges(t *testing.T) {
	type change struct {
		body any
		kind cellfsm.Kind // 0: it changes no record that was there
	}
	changes := map[raftfsm.Number]change{
		cellfsm.CreateCustomerNumber: {body: cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "B"}}},
		cellfsm.UpdateCustomerNumber: {cellfsm.UpdateCustomer{ID: 1, Expected: 1, Fields: cellfsm.CustomerFields{Name: "C"}}, cellfsm.CustomerKind},
		cellfsm.CreateInvoiceNumber:  {body: cellfsm.CreateInvoice{Fields: fields(2), Status: cellfsm.Draft}},
		cellfsm.PruneNumber:          {body: cellfsm.Prune{Audit: 1 << 62, Limit: 10}},
		cellfsm.UpdateInvoiceNumber:  {cellfsm.UpdateInvoice{ID: 1, Expected: 1, Fields: fields(2)}, cellfsm.InvoiceKind},
	}
	for _, line := range cellfsm.Commands(nil).Lines() {
		if line.Class != raftfsm.TenantWrite {
			continue
		}
		c, known := changes[line.Number]
		if !known {
			t.Errorf("%s: say here which record it changes", line.Name)
			continue
		}
		r := newReplica(t, 1<<20, 8, nil)
		_, release, err := r.space.Acquire(string(t7))
		if err != nil {
			t.Fatal(err)
		}
		release()
		p := r.space.Presence(t7)
		for _, kind := range []cellfsm.Kind{cellfsm.CustomerKind, cellfsm.InvoiceKind} {
			for _, a := range audiences {
				r.cache.Fill(p, p.Control().Sequence, kind, 1, a, NewEntry([]byte("1"), 1))
			}
		}
		r.do(line.Number, t7, c.body)
		for _, kind := range []cellfsm.Kind{cellfsm.CustomerKind, cellfsm.InvoiceKind} {
			for _, a := range audiences {
				if there := r.found(t7, kind, 1, a) != nil; there == (kind == c.kind) {
					t.Errorf("after %s: kind %d, audience %d: remembered is %t", line.Name, kind, a, there)
				}
			}
		}
	}
}

// TestSlowReaderPutsNothingOldBack: a row that was read before a change is not
// remembered after it, whichever record of the tenant's changed.
func TestSlowReaderPutsNothingOldBack(t *testing.T) {
	r := newReplica(t, 1<<20, 8, nil)
	old, err := r.read(t7, 1, Public, func() { r.update(t7, 1, 1) })
	if err != nil || old != 1 {
		t.Fatalf("version %d, %v", old, err)
	}
	if r.found(t7, cellfsm.InvoiceKind, 1, Public) != nil {
		t.Error("the old row was put back")
	}
	if n := testutil.ToFloat64(r.cache.refused); n != 1 {
		t.Errorf("%v fills were refused, want 1", n)
	}
	r.want(t7, 1, Public, 2)
	if r.found(t7, cellfsm.InvoiceKind, 1, Public) == nil {
		t.Error("a current row was not remembered")
	}
}

// TestClosedFile: what is remembered is found while the file is closed, and
// forgotten when a command opens it and changes the record.
func TestClosedFile(t *testing.T) {
	r := newReplica(t, 1<<20, 1, nil)
	r.want(t7, 1, Public, 1)
	life, before := r.space.Presence(t7).Life(), r.space.Presence(t7).Control()
	r.want(t8, 1, Public, 1) // closes the file of T7
	if r.space.Open() != 1 || r.found(t7, cellfsm.InvoiceKind, 1, Public) == nil || r.space.Presence(t7).Control() != before {
		t.Errorf("%d open, found %v, control %+v", r.space.Open(), r.found(t7, cellfsm.InvoiceKind, 1, Public), r.space.Presence(t7).Control())
	}
	r.update(t7, 1, 1)
	if now := r.space.Presence(t7).Control(); r.space.Presence(t7).Life() != life || now.Applied <= before.Applied {
		t.Errorf("life %d, was %d; control %+v", r.space.Presence(t7).Life(), life, now)
	}
	r.want(t7, 1, Public, 2)
}

func TestBounded(t *testing.T) {
	const size = 256 << 10
	r := newReplica(t, size, 8, nil)
	r.want(t7, 1, Public, 1)
	p := r.space.Presence(t7)
	body := bytes.Repeat([]byte("x"), 1000)
	for id := range int64(5000) {
		r.cache.Fill(p, p.Control().Sequence, cellfsm.CustomerKind, id, Public, NewEntry(body, 1))
	}
	r.cache.entries.CleanUp()
	n, bytes := r.cache.entries.EstimatedSize(), r.cache.entries.WeightedSize()
	if bytes > size || n < 100 || n > size/len(body) {
		t.Errorf("%d records take %d bytes of %d", n, bytes, size)
	}
}

func TestNoCache(t *testing.T) {
	c, err := New(0, nil)
	if c != nil || err != nil {
		t.Fatal(c, err)
	}
	c.Fill(nil, 0, cellfsm.InvoiceKind, 1, Public, NewEntry(nil, 1))
	if c.Find(Key{}) != nil {
		t.Error("found something")
	}
	if _, err := New(-1, nil); err == nil {
		t.Error("a negative size was taken")
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newReplica(t, 1<<20, 8, registry)
	for range 4 {
		r.want(t7, 1, Public, 1)
	}
	if hits := testutil.ToFloat64(r.cache.hits); hits != 3 {
		t.Errorf("%v hits, want 3", hits)
	}
	if misses := testutil.ToFloat64(r.cache.misses); misses != 1 {
		t.Errorf("%v misses, want 1", misses)
	}
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, m := range gathered {
		names += m.GetName() + " "
	}
	if names != "celld_cell_cache_bytes celld_cell_cache_fills_refused_total celld_cell_cache_lookups_total celld_cell_cache_records " {
		t.Error(names)
	}
}

// TestNoReaderGoesBack is the cache against a naive twin, which knows the latest
// acknowledged version of each invoice: no reader sees an older one, nor one older
// than what any reader has seen before it began. Files close and open all the while.
func TestNoReaderGoesBack(t *testing.T) {
	r := newReplica(t, 1<<20, 1, nil)
	const updates, readers = 60, 4
	type record struct {
		uid tenant.UID
		id  int64
	}
	all := []record{{t7, 1}, {t7, 2}, {t8, 1}, {t8, 2}}
	var acknowledged, seen [4]atomic.Int64
	for i := range all {
		acknowledged[i].Store(1)
	}
	var done atomic.Bool
	var work sync.WaitGroup
	fail := make(chan error, readers)
	for n := range readers {
		work.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for !done.Load() {
				i := random.IntN(len(all))
				floor := max(acknowledged[i].Load(), seen[i].Load())
				got, err := r.read(all[i].uid, all[i].id, audiences[random.IntN(2)], nil)
				if err != nil || int64(got) < floor {
					fail <- fmt.Errorf("record %v: version %d, %w; %d was there before", all[i], got, err, floor)
					return
				}
				for {
					was := seen[i].Load()
					if was >= int64(got) || seen[i].CompareAndSwap(was, int64(got)) {
						break
					}
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(7, 7))
	for range updates {
		i := random.IntN(len(all))
		version := acknowledged[i].Load()
		r.update(all[i].uid, cellfsm.InvoiceID(all[i].id), cellfsm.Version(version))
		acknowledged[i].Store(version + 1)
	}
	done.Store(true)
	work.Wait()
	close(fail)
	for err := range fail {
		t.Error(err)
	}
	if testutil.ToFloat64(r.cache.hits) == 0 {
		t.Error("the cache was never asked for what it had")
	}
}
