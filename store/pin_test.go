package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func notes(t *testing.T, p *Pin) (n int) {
	t.Helper()
	if err := p.Read(nil, func(c *Conn) error {
		_, err := c.One("SELECT count(*) FROM note", func(r *Row) error { n = r.ColumnInt(0); return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPinKeepsOneStateAndHoldsNoSlot(t *testing.T) {
	f := newFile(t)
	f.behind = true
	f.slots = newSlots(1)
	if err := insert(f, 1, "open"); err != nil {
		t.Fatal(err)
	}
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	if f.open.Load() {
		t.Error("the pin does not see what is not committed")
	}
	sum, err := p.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 { // with the only slot
		if err := insert(f, uint64(i+2), fmt.Sprint("later ", i)); err != nil {
			t.Fatal(err)
		}
		if err := f.Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	if n := notes(t, p); n != 1 || p.Control().Applied != 1 {
		t.Errorf("the pinned state has %d notes and control %+v", n, p.Control())
	}
	if again, err := p.Digest(t.Context()); err != nil || again != sum {
		t.Errorf("the pinned state's digest changed: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read from a closed pin: %v", err)
	}
	if len(f.slots.calls) != 0 {
		t.Error("a slot was kept")
	}
}

func TestInterruptedReadLeavesThePin(t *testing.T) {
	f := newFile(t)
	if err := insert(f, 1, "a"); err != nil {
		t.Fatal(err)
	}
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := insert(f, 2, "b"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = p.Read(ctx.Done(), func(c *Conn) error {
		return c.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n", func(r *Row) error {
			if r.ColumnInt(0) == 10 {
				cancel()
			}
			return nil
		})
	})
	if err == nil {
		t.Fatal("an endless read ended well")
	}
	if n := notes(t, p); n != 1 {
		t.Errorf("after an interrupt the pin has %d notes", n)
	}
	if _, err := p.Digest(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("digest after its caller has gone: %v", err)
	}
}

func TestPinThatLostItsStateSaysSo(t *testing.T) {
	f := newFile(t)
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Read(nil, func(c *Conn) error { return c.Query("COMMIT", nil) }); err != nil {
		t.Fatal(err)
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); !errors.Is(err, errPinLost) {
		t.Errorf("read of another state: %v", err)
	}
}

// The very bytes matter: checksums of pages are compared between replicas.
func TestPagesAreThoseOfTheFile(t *testing.T) {
	f := newFile(t)
	for i := range 300 {
		if err := insert(f, uint64(i+1), fmt.Sprint(i, " ", string(bytes.Repeat([]byte("x"), 3000)))); err != nil {
			t.Fatal(err)
		}
	}
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range 300 {
		if err := insert(f, uint64(i+1001), fmt.Sprint("later ", i)); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(t.TempDir(), "first.db")
	if err := p.CopyTo(first); err != nil {
		t.Fatal(err)
	}
	if err := p.CopyTo(first); !errors.Is(err, os.ErrExist) {
		t.Errorf("copied over a file: %v", err)
	}
	g, err := Open(first, testSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Control() != p.Control() || count(t, g) != 300 {
		t.Errorf("the copy has %d notes, control %+v", count(t, g), g.Control())
	}
	second := filepath.Join(t.TempDir(), "second.db")
	if err := g.CopyTo(second); err != nil {
		t.Fatal(err)
	}
	a, b := readAll(t, first), readAll(t, second)
	if len(a) < copyPiece || !bytes.Equal(a, b) {
		t.Errorf("a copy of %d bytes has other bytes than its own copy of %d", len(a), len(b))
	}
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPanicInAReadLeaksNoReader(t *testing.T) {
	f := newFile(t)
	f.slots = newSlots(1)
	boom := func(*Conn) error { panic("boom") }
	for name, read := range map[string]func(){
		"scan": func() { _ = f.Scan(t.Context(), boom) },
		"view": func() { _ = f.View(boom) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s swallowed the panic", name)
				}
			}()
			read()
		}()
		if len(f.slots.calls) != 0 {
			t.Errorf("%s kept a slot", name)
		}
		if err := insert(f, 1, name); err != nil {
			t.Fatal(err)
		}
		if err := f.Scan(t.Context(), func(*Conn) error { return nil }); err != nil {
			t.Errorf("after a panic in a %s: %v", name, err)
		}
	}
}

// SQLite says nothing when it can't move the WAL while a file is closed: what
// lies there must count only once it is on disk.
func TestFileThatClosesBadlyIsNotDurable(t *testing.T) {
	var heard error
	h, paths := newHandles(t, 2, 1, func(_ string, err error) { heard = err })
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 7, "acknowledged"); err != nil {
		t.Fatal(err)
	}
	f.path = filepath.Join(t.TempDir(), "x\x00") // its WAL can't be looked at
	release()
	if _, release, err := h.Acquire("1", paths[1]); err == nil {
		release()
	}
	if heard == nil {
		t.Error("nobody heard of it")
	}
	if err := h.Sync(nil); err == nil {
		t.Error("the file counts as durable")
	}
}

func TestPacedDigestHoldsNoSlotWhileItWaits(t *testing.T) {
	f := newFile(t)
	f.slots = newSlots(1)
	body := strings.Repeat("x", digestPiece/2)
	for i := range 8 {
		if err := insert(f, uint64(i+1), fmt.Sprint(body, i)); err != nil {
			t.Fatal(err)
		}
	}
	want := digest(t, f)
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	calls, last := 0, int64(0)
	sum, rows, err := p.DigestPaced(t.Context(), func(rows, bytes int64) {
		if bytes < last || rows > 20 {
			t.Errorf("after %d bytes: %d rows, %d bytes", last, rows, bytes)
		}
		calls, last = calls+1, bytes
		if err := insert(f, uint64(100+calls), fmt.Sprint("meanwhile ", calls)); err != nil { // with the only slot
			t.Error(err)
		}
	})
	if err != nil || hex.EncodeToString(sum[:]) != want || calls < 4 || rows < 8 {
		t.Errorf("%x in %d pieces, %d rows, %v; want %s", sum, calls, rows, err, want)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	if _, _, err := p.DigestPaced(ctx, func(int64, int64) { cancel(enough) }); !errors.Is(err, enough) {
		t.Errorf("ended by its context: %v", err)
	}
}
