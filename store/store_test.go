package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testSchema = &Schema{Kind: "tenant", Migrations: []string{
	`CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE, extra BLOB) STRICT;`,
}}

var testControl = Control{UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Tenant: "T7", CellKey: "k", Epoch: 1, State: tenant.Active}

func newFile(t *testing.T) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenants", "u", "1-0", "tenant.db")
	if err := Create(path, testSchema, testControl, 1); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, testSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func testHandles(t testing.TB, schema *Schema, files int, d *Descriptors) *Handles {
	t.Helper()
	h, err := NewHandles(schema, files, d, NewSlots(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func insert(f *File, index uint64, body string) error {
	return f.Update(func(tx *Tx) error {
		return tx.Savepoint(func() error {
			tx.Control().Applied = index
			tx.Control().Sequence++
			_, err := tx.Exec("INSERT INTO note (body) VALUES (?)", body)
			return err
		})
	})
}

func count(t *testing.T, f *File) (n int) {
	t.Helper()
	if err := f.View(func(c *Conn) error {
		_, err := c.One("SELECT count(*) FROM note", func(r *Row) error { n = r.ColumnInt(0); return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func digest(t *testing.T, f *File) string {
	t.Helper()
	d, _, err := f.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", d)
}

func TestDataAndControlBecomeVisibleTogether(t *testing.T) {
	f := newFile(t)
	if err := insert(f, 7, "a"); err != nil {
		t.Fatal(err)
	}
	if c := f.Control(); c.Applied != 7 || c.Sequence != 1 {
		t.Fatalf("control %+v", c)
	}
	again, err := Open(f.Path(), testSchema)
	if err != nil {
		t.Fatal(err)
	}
	if c := again.Control(); c != f.Control() {
		t.Errorf("another connection reads %+v, committed was %+v", c, f.Control())
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRefusalChangesNothing(t *testing.T) {
	f := newFile(t)
	if err := insert(f, 7, "a"); err != nil {
		t.Fatal(err)
	}
	before, control := digest(t, f), f.Control()
	refused := errors.New("no")
	err := f.Update(func(tx *Tx) error {
		err := tx.Savepoint(func() error {
			tx.Control().Applied = 8
			if _, err := tx.Exec("INSERT INTO note (body) VALUES ('b')"); err != nil {
				return err
			}
			return refused
		})
		if !errors.Is(err, refused) {
			return fmt.Errorf("savepoint says: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := digest(t, f); d != before || f.Control() != control {
		t.Errorf("a refusal left a trace: control %+v", f.Control())
	}
}

func TestConstraintErrorIsAResult(t *testing.T) {
	f := newFile(t)
	if err := insert(f, 1, "a"); err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 2, "a"); !IsUnique(err) {
		t.Fatalf("got %v, want a unique violation", err)
	}
	if err := insert(f, 3, "b"); err != nil {
		t.Fatal("the writer is not usable after a constraint error:", err)
	}
	if n := count(t, f); n != 2 {
		t.Errorf("%d notes, want 2", n)
	}
}

func TestFailedUpdateKeepsEarlierSavepointsOut(t *testing.T) {
	f := newFile(t)
	err := f.Update(func(tx *Tx) error {
		if err := tx.Savepoint(func() error { _, err := tx.Exec("INSERT INTO note (body) VALUES ('a')"); return err }); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || count(t, f) != 0 {
		t.Errorf("err %v, %d notes", err, count(t, f))
	}
	if err := insert(f, 1, "a"); err != nil {
		t.Error("nothing was lost, and yet the file refuses:", err)
	}
}

func TestFailedUpdateThatLosesOthersEndsTheFile(t *testing.T) {
	f := newFile(t)
	f.behind = true
	if err := insert(f, 1, "a"); err != nil {
		t.Fatal(err)
	}
	if err := f.Update(func(*Tx) error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	view := f.View(func(*Conn) error { return nil })
	scan := f.Scan(t.Context(), func(*Conn) error { return nil })
	for what, err := range map[string]error{"view": view, "scan": scan, "update": insert(f, 2, "b"), "sync": f.Sync()} {
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s after an update was lost: %v", what, err)
		}
	}
}

func TestOpenTransactionIsSeenByReadersHereAndCommittedForOthers(t *testing.T) {
	f := newFile(t)
	f.behind = true
	other, err := Open(f.Path(), testSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i, commit := range []func() error{
		f.Commit, f.Sync, func() error { _, _, err := f.Digest(t.Context()); return err },
		func() error { return f.Scan(t.Context(), func(*Conn) error { return nil }) },
		func() error { return f.CopyTo(filepath.Join(t.TempDir(), "copy.db")) },
	} {
		if err := insert(f, uint64(i+1), fmt.Sprint("note ", i)); err != nil {
			t.Fatal(err)
		}
		if here, there := count(t, f), count(t, other); here != i+1 || there != i {
			t.Errorf("%d: before the commit %d notes are seen here and %d elsewhere", i, here, there)
		}
		if applied := f.Control().Applied; applied != uint64(i+1) {
			t.Errorf("applied index is %d", applied)
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		if here, there := count(t, f), count(t, other); here != i+1 || there != i+1 {
			t.Errorf("%d: after the commit %d notes are seen here and %d elsewhere", i, here, there)
		}
	}
	for i := range commitEvery {
		if err := insert(f, uint64(i+100), fmt.Sprint("more ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if f.open.Load() {
		t.Error("an open transaction is not bounded")
	}
}

func TestWriteBehindCommitsByAgeAndOnClose(t *testing.T) {
	h := testHandles(t, testSchema, 2, nil)
	h.WriteBehind(time.Millisecond, func(_ string, err error) { t.Error(err) })
	path := filepath.Join(t.TempDir(), "tenant.db")
	if err := Create(path, testSchema, testControl, 1); err != nil {
		t.Fatal(err)
	}
	f, release, err := h.Acquire("u", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 1, "a"); err != nil {
		t.Fatal(err)
	}
	release()
	for f.open.Load() { // the test's deadline ends this if nobody commits
		runtime.Gosched()
	}
	f, release, err = h.Acquire("u", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 2, "b"); err != nil {
		t.Fatal(err)
	}
	release()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := Open(path, testSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if n := count(t, g); n != 2 || g.Control().Applied != 2 {
		t.Errorf("%d notes, control %+v", n, g.Control())
	}
}

// hazards.md 16: the interrupt of one request must not reach the next user of
// the connection.
func TestInterruptedScanLeavesTheConnectionUsable(t *testing.T) {
	f := newFile(t)
	for round := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		err := f.Scan(ctx, func(c *Conn) error {
			return c.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n", func(r *Row) error {
				if r.ColumnInt(0) == 10 {
					cancel()
				}
				return nil
			})
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("round %d: an endless scan ended with %v", round, err)
		}
		count(t, f)
	}
	if n := len(f.free); n == 0 || n > keepReaders {
		t.Errorf("%d idle readers kept", n)
	}
}

func TestCreateIsIdempotentAndRepairs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "tenant.db")
	for range 2 {
		if err := Create(path, testSchema, testControl, 1); err != nil {
			t.Fatal(err)
		}
	}
	other := testControl
	other.Tenant = "T8"
	if err := Create(path, testSchema, other, 1); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("created T8 over T7: %v", err)
	}
	half := filepath.Join(t.TempDir(), "a", "b", "tenant.db")
	if err := os.MkdirAll(filepath.Dir(half), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, rest := range [][]byte{nil, []byte("not a database, but longer than the header of one, which has a hundred bytes at its very beginning......")} {
		if err := os.WriteFile(half, rest, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Create(half, testSchema, testControl, 1); err != nil {
			t.Fatalf("over %d bytes of an earlier crash: %v", len(rest), err)
		}
		if err := Remove(half); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	f := newFile(t)
	older := &Schema{Kind: "tenant"}
	if g, err := Open(f.Path(), older); err == nil {
		g.Close()
		t.Fatal("a file of a newer schema was opened")
	}
}

func TestCopyHasTheSameContent(t *testing.T) {
	f := newFile(t)
	for i := range 100 {
		if err := insert(f, uint64(i+1), fmt.Sprint("note ", i)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := f.CopyTo(path); err != nil {
		t.Fatal(err)
	}
	g, err := Open(path, testSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if digest(t, g) != digest(t, f) || g.Control() != f.Control() {
		t.Errorf("the copy differs: %+v, %+v", g.Control(), f.Control())
	}
	if err := insert(f, 200, "one more"); err != nil {
		t.Fatal(err)
	}
	if digest(t, g) == digest(t, f) {
		t.Error("the digest does not see a new row")
	}
}

func TestDigestLeavesOnlyTheAppliedIndexOut(t *testing.T) {
	a, b := newFile(t), newFile(t)
	if err := errors.Join(insert(a, 5, "x"), insert(b, 9, "x")); err != nil {
		t.Fatal(err)
	}
	if digest(t, a) != digest(t, b) {
		t.Error("the applied index is part of the digest")
	}
	if err := b.Update(func(tx *Tx) error {
		return tx.Savepoint(func() error { tx.Control().Sequence++; return nil })
	}); err != nil {
		t.Fatal(err)
	}
	if digest(t, a) == digest(t, b) {
		t.Error("the sequence is not part of the digest")
	}
}

func TestCheckpointAndSyncWhileOthersWrite(t *testing.T) {
	f := newFile(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 50 {
				if err := errors.Join(f.Checkpoint(), f.Sync()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 300 {
		if err := insert(f, uint64(i+1), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if n := count(t, f); n != 300 {
		t.Errorf("%d notes, want 300", n)
	}
}

// Many Views at a time share the writer and the readers that are kept, and open
// none besides.
func TestViewsShareTheKeptReaders(t *testing.T) {
	f := newFile(t)
	var most, now int
	var mu sync.Mutex
	var wg sync.WaitGroup
	conns := make(map[*Conn]bool)
	for range 64 {
		wg.Go(func() {
			for range 20 {
				if err := f.View(func(c *Conn) error {
					mu.Lock()
					now++
					most = max(most, now)
					conns[c] = true
					mu.Unlock()
					runtime.Gosched()
					mu.Lock()
					now--
					mu.Unlock()
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most > keepReaders+1 || len(conns) > keepReaders+1 {
		t.Errorf("%d at a time, on %d connections", most, len(conns))
	}
}

// However many scans run, updates and short reads find a slot.
func TestScansLeaveSlotsForOthers(t *testing.T) {
	f := newFile(t)
	f.slots = newSlots(4)
	release := make(chan struct{})
	var running, wg sync.WaitGroup
	running.Add(2)
	for range 2 {
		wg.Go(func() {
			if err := f.Scan(t.Context(), func(*Conn) error {
				running.Done()
				<-release
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	gone, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if err := f.Scan(gone, func(*Conn) error { return nil }); !errors.Is(err, over) {
		t.Errorf("a third scan: %v", err)
	}
	if err := insert(f, 1, "a"); err != nil {
		t.Error(err)
	}
	if n := count(t, f); n != 1 {
		t.Errorf("%d notes", n)
	}
	close(release)
	wg.Wait()
}
