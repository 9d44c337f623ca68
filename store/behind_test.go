package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newHandles makes n files, called "0" and so on, and handles that keep bound of
// them open and commit only when somebody asks.
func newHandles(t *testing.T, n, bound int, fail func(string, error)) (*Handles, []string) {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, n)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("u", i), "1-0", "tenant.db")
		if err := Create(paths[i], testSchema, testControl, 1); err != nil {
			t.Fatal(err)
		}
	}
	h := testHandles(t, testSchema, bound, nil)
	h.WriteBehind(time.Hour, fail)
	t.Cleanup(func() { _ = h.Close() })
	return h, paths
}

func (h *Handles) isOpen(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byKey[key] != nil
}

// A file that is evicted commits while it is closed. Who opens it anew before
// that would read, and write, on what was before.
func TestEvictedFileIsNotOpenedBeforeItHasCommitted(t *testing.T) {
	h, paths := newHandles(t, 2, 1, func(_ string, err error) { t.Error(err) })
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 7, "acknowledged"); err != nil {
		t.Fatal(err)
	}
	release()
	f.mu.Lock() // so that closing it takes long
	var wg sync.WaitGroup
	wg.Go(func() {
		_, release, err := h.Acquire("1", paths[1]) // evicts it
		if err != nil {
			t.Error(err)
			return
		}
		release()
	})
	for h.isOpen("0") {
		runtime.Gosched()
	}
	synced := make(chan error, 1)
	wg.Go(func() { synced <- h.Sync(nil) })
	opened := make(chan struct{})
	wg.Go(func() {
		defer close(opened)
		again, release, err := h.Acquire("0", paths[0])
		if err != nil {
			t.Error(err)
			return
		}
		defer release()
		if n := count(t, again); n != 1 || again.Control().Applied != 7 {
			t.Errorf("opened anew it has %d notes and control %+v", n, again.Control())
		}
	})
	select {
	case <-opened:
		t.Error("opened anew before it was closed")
	case err := <-synced:
		t.Errorf("a sync left out a file that is being closed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.mu.Unlock()
	wg.Wait()
}

// Whoever commits, that it went wrong must end the node: what is lost is in the
// log alone, and a file opened anew would go on without it.
func TestLostUpdatesAreHeardOf(t *testing.T) {
	for name, commit := range map[string]func(*Handles, *File, string){
		"scan": func(_ *Handles, f *File, _ string) {
			_ = f.Scan(t.Context(), func(*Conn) error { return nil })
		},
		"eviction": func(h *Handles, _ *File, other string) {
			if _, release, err := h.Acquire("1", other); err == nil {
				release()
			}
		},
		"committer": func(h *Handles, _ *File, _ string) { _ = h.behind.commit(h.byKey["0"]) },
	} {
		t.Run(name, func(t *testing.T) {
			var heard atomic.Int32
			h, paths := newHandles(t, 2, 1, func(string, error) { heard.Add(1) })
			f, release, err := h.Acquire("0", paths[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Update(func(tx *Tx) error {
				return tx.Savepoint(func() error { return tx.Query("DROP TABLE tenant_control", nil) }) // no commit can succeed
			}); err != nil {
				t.Fatal(err)
			}
			release()
			commit(h, f, paths[1])
			if heard.Load() != 1 {
				t.Errorf("heard of %d times", heard.Load())
			}
			if err := h.Sync(nil); err == nil {
				t.Error("the file counts as durable")
			}
			if err := h.Sync(func(key string) bool { return key == "0" }); err != nil {
				t.Errorf("a file that was given up fails a sync: %v", err)
			}
			if _, release, err := h.Acquire("1", paths[1]); err == nil { // evicts the other, if it is still there
				release()
			}
			if f, release, err := h.Acquire("0", paths[0]); err == nil {
				release()
				t.Errorf("opened anew without the lost update: %+v", f.Control())
			}
		})
	}
}

func TestPanicInUpdateLeavesNothing(t *testing.T) {
	f := newFile(t)
	f.behind = true
	panicking := func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = f.Update(func(tx *Tx) error {
			return tx.Savepoint(func() error {
				if _, err := tx.Exec("INSERT INTO note (body) VALUES ('half')"); err != nil {
					t.Error(err)
				}
				panic("a fault in a handler")
			})
		})
	}
	panicking()
	if n := count(t, f); n != 0 {
		t.Errorf("%d notes of a command that did not end", n)
	}
	if err := insert(f, 1, "kept"); err != nil {
		t.Fatal(err)
	}
	panicking()
	if err := f.Commit(); !errors.Is(err, errPanicked) {
		t.Errorf("commit after an update was lost: %v", err)
	}
}

// The WAL begins anew only when a transaction finds all of it in the file: a file
// that is never idle, and never without users, gives no such moment by itself.
func TestWALOfABusyFileStaysBounded(t *testing.T) {
	h, paths := newHandles(t, 1, 1, func(_ string, err error) { t.Error(err) })
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	f.behind = false
	const bound = 10_000
	var first []byte
	wal, err := os.Open(paths[0] + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	defer wal.Close()
	for i := range bound {
		f, release, err := h.Acquire("0", paths[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := insert(f, uint64(i+1), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		release()
		head := make([]byte, 32)
		if _, err := io.ReadFull(wal, head); err != nil {
			t.Fatal(err)
		}
		if _, err := wal.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		switch { // its salts change when it begins anew
		case first == nil:
			first = head
		case !bytes.Equal(first, head):
			if f.wal.bytes.Load() >= checkpointBytes {
				t.Errorf("begun anew it has %d bytes", f.wal.bytes.Load())
			}
			return
		}
	}
	t.Errorf("after %d updates the WAL has never begun anew", bound)
}

// fill applies n commands in one update, each with a text of size bytes.
func fill(t *testing.T, f *File, from, n, size int) {
	t.Helper()
	if err := f.Update(func(tx *Tx) error {
		for i := range n {
			if err := tx.Direct(func() error {
				tx.Control().Applied++
				return tx.Query("INSERT INTO note (body) VALUES (?)", nil, fmt.Sprint((from+i)*7919%1_000_003, strings.Repeat("x", size)))
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What is held in memory is not more than the estimate, which the budget counts.
func TestEstimateOfWhatIsNotCommittedIsNotTooLow(t *testing.T) {
	h, paths := newHandles(t, 1, 1, func(_ string, err error) { t.Error(err) })
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	const frame = pageSize + 24
	random, given := rand.New(rand.NewPCG(5, 6)), 0
	var before int64
	for range 60 {
		n, size := 1+random.IntN(40), random.IntN(300)
		fill(t, f, given, n, size)
		given += n
		charged := h.budget.used.Load()
		if charged == 0 || charged != f.charged {
			t.Fatalf("%d bytes are charged, %d for the only file", charged, f.charged)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if held := (f.wal.bytes.Load() - before) / frame * pageSize; held > charged {
			t.Errorf("%d commands of %d bytes held %d bytes, the estimate was %d", n, size, held, charged)
		}
		before = f.wal.bytes.Load()
		if left := h.budget.used.Load(); left != 0 {
			t.Fatalf("after the commit %d bytes are charged", left)
		}
	}
}

// With the budget used up a transaction commits at its own end, and the committer
// does not wait for the age of the others.
func TestOpenTransactionsStayWithinTheBudget(t *testing.T) {
	const files = 8
	h, paths := newHandles(t, files, files, func(_ string, err error) { t.Error(err) })
	h.budget.max = 100 << 10
	var open []*File
	for round := range 20 {
		for i, path := range paths {
			f, release, err := h.Acquire(fmt.Sprint(i), path)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, f, round*10, 10, 100)
			if used := h.budget.used.Load(); used > h.budget.max {
				t.Errorf("open transactions hold %d bytes, the bound is %d", used, h.budget.max)
			}
			release()
			open = append(open, f)
		}
	}
	for h.budget.pressed() { // the committer's age is an hour; the test's deadline ends this
		runtime.Gosched()
	}
	for _, f := range open {
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if used := h.budget.used.Load(); used != 0 {
		t.Errorf("with nothing open %d bytes are charged", used)
	}
}
