package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"

	"zombiezen.com/go/sqlite"
)

// salts reads what tells one life of a WAL from the next.
func salts(t *testing.T, f *File) uint64 {
	t.Helper()
	wal, err := f.OpenWAL()
	if err != nil {
		t.Fatal(err)
	}
	defer wal.Close()
	var head [32]byte
	if _, err := wal.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return 0
	} else if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(head[16:])
}

// bystander is a connection that does not wait.
func bystander(t *testing.T, f *File) *Conn {
	t.Helper()
	c, err := openConn(f.Path(), connPragmas, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.c.Close(); err != nil {
			t.Error(err)
		}
	})
	c.c.SetBusyTimeout(0)
	return c
}

func TestPinOnAMovedWALDoesNotKeepIt(t *testing.T) {
	f := newFile(t)
	if err := errors.Join(insert(f, 1, "a"), f.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	before := salts(t, f)
	p, err := f.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := insert(f, 2, "b"); err != nil {
		t.Fatal(err)
	}
	if salts(t, f) == before {
		t.Error("the WAL was not begun anew: PinWAL has nothing to do")
	}
}

func TestPinnedWALStaysThroughEveryCheckpoint(t *testing.T) {
	for _, start := range []string{"new", "moved", "begun"} {
		t.Run(start, func(t *testing.T) {
			f := newFile(t)
			f.behind = true
			other := bystander(t, f)
			if start != "new" {
				if err := insert(f, 1, "a"); err != nil {
					t.Fatal(err)
				}
			}
			if start == "moved" {
				if err := f.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			p, m, err := f.PinWAL(math.MaxInt64)
			if err != nil {
				t.Fatal(err)
			}
			if m.Frames == 0 || m.Control != f.Control() || p.Control() != m.Control {
				t.Fatalf("mark %+v, control %+v", m, f.Control())
			}
			first, last := salts(t, f), m.Frames
			for i, mode := range []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE", "PASSIVE", "TRUNCATE"} {
				if err := insert(f, uint64(i+2), mode+fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
				now, err := f.Mark()
				if err != nil {
					t.Fatal(err)
				}
				if now.Frames <= last || now.Control != f.Control() || now.Control.Applied != uint64(i+2) {
					t.Errorf("after %s: %d frames, were %d; control %+v", mode, now.Frames, last, now.Control)
				}
				last = now.Frames
				if err := other.Query("PRAGMA wal_checkpoint("+mode+")", nil); err != nil {
					t.Fatal(err)
				}
				if err := f.Checkpoint(); err != nil {
					t.Fatal(err)
				}
				if salts(t, f) != first {
					t.Fatalf("a checkpoint (%s) began the WAL anew", mode)
				}
			}
			if err := errors.Join(p.Close(), f.Checkpoint(), insert(f, 100, "z"), f.Commit()); err != nil {
				t.Fatal(err)
			}
			if salts(t, f) == first || len(f.keepers) != 0 {
				t.Error("a pin that was closed keeps the WAL")
			}
		})
	}
}

// A checkpoint between the look and the pin makes the pin useless, and must be seen.
func TestPinOfTheWALWhileOthersMoveIt(t *testing.T) {
	f := newFile(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := f.maintain("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 200 {
		p, m, err := f.PinWAL(math.MaxInt64)
		if err != nil {
			t.Error(err)
			break
		}
		if err := insert(f, uint64(i+1), fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
		if now, err := f.Mark(); err != nil || now.Frames <= m.Frames {
			t.Errorf("round %d: %d frames at the pin, %d after a write: %v", i, m.Frames, now.Frames, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestPinEndsWhenTheWALOutgrowsIt(t *testing.T) {
	f := newFile(t)
	const most = 100 << 10
	p, _, err := f.PinWAL(most)
	if err != nil {
		t.Fatal(err)
	}
	first, n := salts(t, f), 0
	for ; p.Read(nil, func(*Conn) error { return nil }) == nil && n < 1000; n++ {
		if err := insert(f, uint64(n+1), fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); !errors.Is(err, ErrPinOutgrown) {
		t.Fatalf("after %d inserts: %v", n, err)
	}
	if size := f.wal.bytes.Load(); size <= most || size > 2*most {
		t.Errorf("it ended at a WAL of %d bytes", size)
	}
	if _, _, err := f.PinWAL(most); !errors.Is(err, ErrPinOutgrown) {
		t.Errorf("a pin that has no room: %v", err)
	}
	if err := errors.Join(f.Checkpoint(), insert(f, 2000, "z")); err != nil {
		t.Fatal(err)
	}
	if salts(t, f) == first {
		t.Error("the WAL is still kept")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if len(f.free) == 0 || len(f.keepers) != 0 {
		t.Error("the reader was not given back")
	}
}

// A commit never waits for who reads from the pin.
func TestPinThatIsReadWhileTheWALOutgrowsItEndsAfterwards(t *testing.T) {
	f := newFile(t)
	f.slots = newSlots(1)
	p, _, err := f.PinWAL(40 << 10)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Read(nil, func(c *Conn) error {
		var failed error
		p.giveWay(func() {
			for i := range 100 {
				failed = errors.Join(failed, insert(f, uint64(i+1), fmt.Sprint(i)))
			}
		})
		return failed
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.c != nil {
		t.Error("nobody ended the pin")
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); !errors.Is(err, ErrPinOutgrown) {
		t.Error(err)
	}
	if len(f.slots.calls) != 0 {
		t.Error("a slot was kept")
	}
}

// Without the pin the WAL could be begun anew, and its space be had back.
func TestPinOfTheWALEndsWhenTheDiskIsShort(t *testing.T) {
	f := newFile(t)
	var disk fakeDisk
	disk.free.Store(5000)
	r := disk.room(t)
	f.room = r
	p, _, err := f.PinWAL(math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(f, 1, "a"); err != nil {
		t.Fatal(err)
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	disk.free.Store(900)
	r.Look()
	if err := insert(f, 2, "b"); err != nil {
		t.Fatal(err)
	}
	if err := p.Read(nil, func(*Conn) error { return nil }); !errors.Is(err, ErrPinOutgrown) {
		t.Errorf("on a disk that is short: %v", err)
	}
	if _, _, err := f.PinWAL(math.MaxInt64); !errors.Is(err, ErrPinOutgrown) {
		t.Errorf("pinned on a disk that is short: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
