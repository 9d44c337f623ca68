package cellfsm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey = tenant.CellKey("CELLKEY")
	testUID = tenant.UID("aaaaaaaaaaaaaaaaaaaaaaaaaa")
	testID  = tenant.ID("T7")
	secondU = tenant.UID("baaaaaaaaaaaaaaaaaaaaaaaaa")
)

// replica is one replica of a cell, fed by the real apply step.
type replica struct {
	t     *testing.T
	dir   string
	space *cellfsm.Space
	apply *raftfsm.Applier
	index uint64
	log   []raftfsm.Command
}

func openReplica(t *testing.T, dir string) *replica {
	t.Helper()
	space, err := cellfsm.OpenSpace(dir, 8, nil, nil, testLog())
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, dir: dir, space: space, apply: raftfsm.NewApplier(cellfsm.Commands(space), space.Guard, space)}
	t.Cleanup(r.close)
	return r
}

func (r *replica) close() {
	if r.space != nil {
		if err := r.space.Close(); err != nil {
			r.t.Error(err)
		}
		r.space = nil
	}
}

// newCell is a replica of a cell that has its key and the tenant T7 at epoch 1.
func newCell(t *testing.T) *replica {
	t.Helper()
	r := openReplica(t, t.TempDir())
	r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: testKey})
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(testUID, testID, 1))
	return r
}

func provision(uid tenant.UID, id tenant.ID, epoch tenant.Epoch) cellfsm.ProvisionTenant {
	return cellfsm.ProvisionTenant{UID: uid, Tenant: id, Epoch: epoch, Cell: testKey, Secret: bytes.Repeat([]byte{7}, 32)}
}

func command(t *testing.T, n raftfsm.Number, target tenant.UID, epoch tenant.Epoch, body any) raftfsm.Command {
	t.Helper()
	c, err := raftfsm.NewCommand(n, string(target), body)
	if err != nil {
		t.Fatal(err)
	}
	c.Epoch, c.Actor = uint64(epoch), "U7"
	return c
}

// do applies one command as the next entry.
func (r *replica) do(c raftfsm.Command) raftfsm.Applied {
	r.t.Helper()
	r.index++
	if c.At == 0 {
		c.At = int64(r.index) * 1000
	}
	r.log = append(r.log, c)
	out, err := r.apply.Apply(r.index, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

func (r *replica) must(n raftfsm.Number, target tenant.UID, epoch tenant.Epoch, body any) raftfsm.Applied {
	r.t.Helper()
	out := r.do(command(r.t, n, target, epoch, body))
	if out.Err != nil {
		r.t.Fatalf("command %d: %v", n, out.Err)
	}
	return out
}

func (r *replica) digest(target tenant.UID) (sum [sha256.Size]byte, ctl store.Control) {
	r.t.Helper()
	f, release, err := r.space.Acquire(string(target))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	sum, ctl, err = f.Digest(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return sum, ctl
}

func (r *replica) count(target tenant.UID, table string) (n int) {
	r.t.Helper()
	f, release, err := r.space.Acquire(string(target))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	err = f.View(func(c *store.Conn) error {
		_, err := c.One("SELECT count(*) FROM "+table, func(row *store.Row) error { n = row.ColumnInt(0); return nil })
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// refused wants a refusal with the slug that leaves no trace in the file.
func (r *replica) refused(slug string, c raftfsm.Command) *fault.Error {
	r.t.Helper()
	target := tenant.UID(c.Target)
	if _, err := r.space.Tenant(target); err != nil {
		target = ""
	}
	attempts := []raftfsm.Command{c}
	if c.Key == nil { // under a key of its own it leaves none either
		c.Key = &raftfsm.Key{Actor: "U7", Operation: "refused", Key: fmt.Sprint(r.index)}
		attempts = append(attempts, c)
	}
	var e *fault.Error
	for _, c := range attempts {
		before, ctl := r.digest(target)
		out := r.do(c)
		if e = fault.As(out.Err); e == nil || e.Slug != slug {
			r.t.Fatalf("got %v, want the refusal %s", out.Err, slug)
		}
		after, now := r.digest(target)
		if after != before || now != ctl {
			r.t.Fatalf("the refusal %s left a trace: %+v, was %+v", slug, now, ctl)
		}
	}
	return e
}

func TestCommandNumbersArePinned(t *testing.T) {
	var got strings.Builder
	for _, d := range cellfsm.Commands(nil).Lines() {
		fmt.Fprintf(&got, "%d %s class %d\n", d.Number, d.Name, d.Class)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "commands.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the table is now\n%s\nit was\n%s\nnumbers are append-only", got.String(), want)
	}
}

// The bytes of bodies and results stand in logs and key rows of releases.
func TestCommandBytesArePinned(t *testing.T) {
	text, n, status := "r", int64(9), cellfsm.Issued
	fields := cellfsm.InvoiceFields{Customer: 4, Amount: 1250, Currency: "USD", Exponent: 2, Reference: &text, Memo: &text, IssuedAt: &n}
	internal := &cellfsm.Internal{CostMinor: &n, Note: &text}
	customer := cellfsm.CustomerFields{Name: "A", Reference: &text, Email: &text, Country: &text}
	var got strings.Builder
	for _, v := range []any{
		cellfsm.InitCell{Name: "C2", Key: testKey}, cellfsm.Cell{Name: "C2", Key: testKey, FeatureLevel: 1},
		provision(testUID, testID, 1), cellfsm.Provisioned{UID: testUID, Tenant: testID, Epoch: 1},
		cellfsm.CreateCustomer{Fields: customer}, cellfsm.UpdateCustomer{ID: 4, Expected: 2, Fields: customer},
		cellfsm.Customer{ID: 4, Version: 1, Fields: customer, CreatedAt: 1, UpdatedAt: 2},
		cellfsm.CreateInvoice{Fields: fields, Status: cellfsm.Draft, Internal: internal},
		cellfsm.UpdateInvoice{ID: 17, Expected: 5, Fields: fields, Status: &status, Internal: internal},
		cellfsm.UpdateInvoice{ID: 17, Expected: 5, Fields: cellfsm.InvoiceFields{Customer: 4, Currency: "JPY"}, Internal: &cellfsm.Internal{}},
		cellfsm.Invoice{ID: 17, Version: 6, Fields: fields, Status: cellfsm.Issued, Internal: internal, CreatedAt: 1, UpdatedAt: 2},
		cellfsm.Prune{Keys: 3, Audit: 2, Limit: 500}, cellfsm.Pruned{Keys: 7, Audit: 1},
		cellfsm.MoveStart{Of: of(move1), Epoch: 1}, importing(move1), cellfsm.MoveFreeze{Of: of(move1), Epoch: 1},
		cellfsm.MoveThaw{Of: of(move1), Epoch: 1, Decision: says(move1, false)},
		cellfsm.MoveActivate{Of: of(move1), Epoch: 3, Watermark: staged, Decision: says(move1, true)},
		cellfsm.MoveRetire{Of: of(move1), Epoch: 1, Decision: says(move1, true)}, cellfsm.MoveDrop{Of: of(move1), Epoch: 1},
		cellfsm.MoveAbort{Of: of(move1), Decision: says(move1, false)},
		cellfsm.Moved{Index: 7}, cellfsm.Moved{Index: 7, Sequence: 3, Absent: true},
		cellfsm.MovePrune{Before: planned, Limit: 500}, cellfsm.MovesPruned{Moves: 2},
	} {
		b, err := raftfsm.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%T %x\n", v, b)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "bytes.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("encodings are now\n%s\nthey were\n%s", got.String(), want)
	}
}

func TestInitCellFirstOneWins(t *testing.T) {
	r := openReplica(t, t.TempDir())
	for _, key := range []tenant.CellKey{testKey, "OTHER"} {
		out := r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: key})
		var cell cellfsm.Cell
		if err := out.Into(&cell); err != nil || cell.Key != testKey || cell.Name != "C2" || cell.FeatureLevel != cellfsm.FeatureLevel {
			t.Fatalf("%+v, %v", cell, err)
		}
	}
	if key, err := r.space.Key(); err != nil || key != testKey {
		t.Fatalf("%q, %v", key, err)
	}
}

func TestProvision(t *testing.T) {
	r := newCell(t)
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(testUID, testID, 1)) // again: nothing new
	if n, err := r.space.Count(); err != nil || n != 1 {
		t.Fatalf("%d tenants, %v", n, err)
	}
	_, ctl := r.digest(testUID)
	want := store.Control{UID: testUID, Tenant: testID, CellKey: testKey, Epoch: 1, State: tenant.Active, Applied: 2, LastTime: 2000}
	if ctl != want {
		t.Fatalf("control row %+v, want %+v", ctl, want)
	}
	no := func(slug string, body cellfsm.ProvisionTenant) {
		t.Helper()
		r.refused(slug, command(t, cellfsm.ProvisionTenantNumber, "", 0, body))
	}
	no("tenant-exists", provision(testUID, testID, 2))
	no("tenant-exists", provision(testUID, "T9", 1))
	no("tenant-exists", provision(secondU, "t7", 1)) // ids are unique ignoring case
	no("invalid-tenant", provision("../../etc", "T9", 1))
	no("invalid-tenant", provision(secondU, "T9", 0))
	no("invalid-tenant", provision(secondU, "9", 1))
	short := provision(secondU, "T9", 1)
	short.Secret = short.Secret[:31]
	no("invalid-tenant", short)
	other := provision(secondU, "T9", 1)
	other.Cell = "OTHER"
	no("wrong-cell", other)
}

func TestFence(t *testing.T) {
	r := newCell(t)
	body := cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}}
	r.must(cellfsm.CreateCustomerNumber, testUID, 1, body)

	for _, epoch := range []tenant.Epoch{0, 2} {
		e := r.refused("placement-changed", command(t, cellfsm.CreateCustomerNumber, testUID, epoch, body))
		if e.Kind != fault.Moved || e.Fields["epoch"] != uint64(1) {
			t.Errorf("epoch %d: %+v", epoch, e)
		}
	}
	r.refused("placement-changed", command(t, cellfsm.CreateCustomerNumber, secondU, 1, body))
	r.refused("wrong-target", command(t, cellfsm.CreateCustomerNumber, "", 1, body))
	r.refused("wrong-target", command(t, cellfsm.InitCellNumber, testUID, 1, cellfsm.InitCell{}))

	for state, slug := range map[tenant.State]string{
		tenant.Frozen: "tenant-frozen", tenant.Importing: "placement-changed", tenant.Retired: "placement-changed",
	} {
		r.setControl(func(ctl *store.Control) { ctl.State = state })
		r.refused(slug, command(t, cellfsm.CreateCustomerNumber, testUID, 1, body))
	}
	r.setControl(func(ctl *store.Control) { ctl.State, ctl.CellKey = tenant.Active, "OTHER" })
	r.refused("placement-changed", command(t, cellfsm.CreateCustomerNumber, testUID, 1, body))
	r.setControl(func(ctl *store.Control) { ctl.CellKey = testKey })
	r.must(cellfsm.CreateCustomerNumber, testUID, 1, body)
}

// The fence comes before the key: a replay is fenced too.
func TestFenceBeforeKey(t *testing.T) {
	r := newCell(t)
	c := command(t, cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}})
	c.Key = &raftfsm.Key{Actor: "U7", Operation: "createCustomer", Key: "k"}
	if out := r.do(c); out.Err != nil {
		t.Fatal(out.Err)
	}
	r.setControl(func(ctl *store.Control) { ctl.State = tenant.Frozen })
	r.refused("tenant-frozen", c)
}

func (r *replica) setControl(change func(*store.Control)) {
	r.t.Helper()
	f, release, err := r.space.Acquire(string(testUID))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	err = f.Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error { change(tx.Control()); return nil })
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// A write that was refused before the tenant arrived must not take effect when
// the log is applied again to files that are ahead of it.
func TestReplayOfEntriesBeforeTheTenantArrived(t *testing.T) {
	dir := t.TempDir()
	r := openReplica(t, dir)
	early := command(t, cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "early"}})
	r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: testKey})
	if out := r.do(early); fault.Of(out.Err) != fault.Moved {
		t.Fatalf("%+v", out)
	}
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(testUID, testID, 1))
	before, _ := r.digest(testUID)
	log := r.log
	r.close()

	again := openReplica(t, dir)
	for i, c := range log {
		if _, err := again.apply.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := again.digest(testUID); after != before || again.count(testUID, "customer") != 0 {
		t.Fatal("the early write took effect")
	}
}

// A crash after the tenant's file was made and before cell.db committed leaves a
// file without a row; the same entry takes it.
func TestProvisionAfterACrashInBetween(t *testing.T) {
	dir := t.TempDir()
	r := openReplica(t, dir)
	r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: testKey})
	path := filepath.Join(dir, "tenants", string(testUID), "1-0", "tenant.db")
	err := store.Create(path, cellfsm.TenantSchema(), store.Control{
		UID: testUID, Tenant: testID, CellKey: testKey, Epoch: 1, State: tenant.Active, Applied: 2, LastTime: 2000,
	}, 2000)
	if err != nil {
		t.Fatal(err)
	}
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(testUID, testID, 1))
	got, _ := r.digest(testUID)
	if want, _ := newCell(t).digest(testUID); got != want {
		t.Fatal("the file differs from one made without a crash")
	}
}

func TestFilesOfAnotherTenantAreNotServed(t *testing.T) {
	r := newCell(t)
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(secondU, "T8", 1))
	r.close()
	path := func(uid tenant.UID) string { return filepath.Join(r.dir, "tenants", string(uid), "1-0", "tenant.db") }
	if err := os.Rename(path(secondU), path(testUID)); err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, r.dir)
	if _, _, err := again.space.Acquire(string(testUID)); !errors.Is(err, cellfsm.ErrAbsent) || !strings.Contains(err.Error(), "belongs to T8") {
		t.Fatalf("got %v", err)
	}
}

func testLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
