package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celld/store/room"
)

// fakeDisk is a file system of a million bytes of which some are free.
type fakeDisk struct{ free atomic.Uint64 }

func (d *fakeDisk) room(t *testing.T) *room.Room {
	t.Helper()
	r, err := room.Open(room.Config{Dir: t.TempDir(), Member: "C2/n1", Reserve: 1000,
		Usage: func(string) (room.Usage, error) { return room.Usage{Free: d.free.Load(), Total: 1e6}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// Without disk space a transaction stays open, because a commit that fails would
// undo it: all of it is read as before, and it commits by itself when space is
// freed.
func TestTransactionWaitsForRoom(t *testing.T) {
	_, paths := newHandles(t, 2, 1, nil)
	h := testHandles(t, testSchema, 1, nil)
	h.WriteBehind(10*time.Millisecond, func(_ string, err error) { t.Error(err) })
	defer h.Close()
	disk := &fakeDisk{}
	disk.free.Store(1e5)
	r := disk.room(t)
	h.KeepRoom(r)
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { release() }()
	disk.free.Store(0)
	r.Look()
	for i := range commitEvery + 1 {
		if err := insert(f, uint64(i+1), fmt.Sprint("kept ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if !f.open.Load() {
		t.Error("it was committed without room for it")
	}
	if err := f.Commit(); !errors.Is(err, room.ErrFull) {
		t.Errorf("a commit: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, room.ErrFull) {
		t.Errorf("a sync: %v", err)
	}
	if _, err := f.Pin(); !errors.Is(err, room.ErrFull) {
		t.Errorf("a pin: %v", err)
	}
	count := func(read func(func(*Conn) error) error) (n int) {
		t.Helper()
		err := read(func(c *Conn) error {
			_, err := c.One("SELECT count(*) FROM note ", func(r *Row) error { n = r.ColumnInt(0); return nil })
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if n := count(f.View); n != commitEvery+1 {
		t.Errorf("View sees %d rows", n)
	}
	if n := count(func(fn func(*Conn) error) error { return f.Scan(context.Background(), fn) }); n != commitEvery+1 {
		t.Errorf("Scan sees %d rows", n)
	}
	release()
	if _, _, err := h.Acquire("1", paths[1]); !errors.Is(err, room.ErrFull) { // there is place for one, and that one cannot go
		t.Errorf("another file: %v", err)
	}
	disk.free.Store(1e5)
	r.Look()
	deadline := time.After(time.Minute)
	for f.open.Load() {
		select {
		case <-deadline:
			t.Fatal("nothing was committed after space was freed")
		case <-time.After(time.Millisecond):
		}
	}
	_, other, err := h.Acquire("1", paths[1])
	if err != nil {
		t.Fatal(err)
	}
	other()
	if f, release, err = h.Acquire("0", paths[0]); err != nil {
		t.Fatal(err)
	}
	if n := count(f.View); n != commitEvery+1 {
		t.Errorf("%d rows are there afterwards", n)
	}
}

// A disk that is full all the same: the file says so, refuses further use, and
// whoever owns the handles hears of it once.
func TestFullDiskAllTheSame(t *testing.T) {
	var heard []error
	h, paths := newHandles(t, 1, 1, func(_ string, err error) { heard = append(heard, err) })
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := f.w.script("PRAGMA max_page_count = 1"); err != nil { // SQLite's own way to be full
		t.Fatal(err)
	}
	if err := insert(f, 1, strings.Repeat("a", 100_000)); !IsFull(err) {
		t.Fatalf("a full disk: %v", err)
	}
	if len(heard) != 0 { // nothing earlier was lost
		t.Errorf("the owner heard %v", heard)
	}
	if err := f.w.script("PRAGMA max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 1, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := f.w.script("PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 2, strings.Repeat("a", 100_000)); !IsFull(err) {
		t.Fatalf("a full disk: %v", err)
	}
	if len(heard) != 1 || !IsFull(heard[0]) {
		t.Errorf("the owner heard %v", heard)
	}
	if err := insert(f, 3, "x"); !IsFull(err) {
		t.Errorf("the file took an update after it lost one: %v", err)
	}
}
