package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"celld/store/fault"
	"celld/store/room"
)

// Mark is a moment between two commits of a file.
type Mark struct {
	Frames  uint32  // of the WAL, all of them committed
	Control Control // as they leave it
}

// ErrPinOutgrown says that a pin was ended because the WAL had grown to the pin's
// bound, or the disk's room had come to an end.
var ErrPinOutgrown = errors.New("the WAL has outgrown the pin that kept it: its bound, or the disk's room")

// errWALUnsteady refuses a pin of the WAL while others keep moving it.
var errWALUnsteady = fault.New(fault.Unavailable, "busy", "the file's WAL is being moved all the time; retry")

// pinTries is how often PinWAL tries again because a checkpoint has moved the WAL
// between its look at it and its pin. A checkpoint takes longer than a try.
const pinTries = 16

// Mark commits what is open and says how far the WAL goes and what it leads to.
func (f *File) Mark() (m Mark, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return m, err
	}
	f.enter()
	defer f.leave()
	if err := f.commit(); err != nil {
		return m, err
	}
	m.Control = *f.control.Load()
	m.Frames, _, err = f.frames()
	return m, err
}

// frames is how many frames the WAL holds, and how many of them are moved into the
// file. The caller holds mu and a slot, and no transaction is open.
func (f *File) frames() (all, moved uint32, err error) {
	_, err = f.w.One("PRAGMA wal_checkpoint(NOOP)", func(r *Row) error {
		all, moved = uint32(max(r.ColumnInt64(1), 0)), uint32(max(r.ColumnInt64(2), 0))
		return nil
	})
	return all, moved, err
}

// PinWAL is Pin, and keeps the WAL too: as long as the pin is open, each of its
// frames stays where it is, whoever runs a checkpoint of whichever mode, and new
// ones only follow. It says where the pinned state ends.
//
// A reader that begins when the whole WAL is moved into the file reads nothing from
// the WAL, and does not keep the next write from beginning it anew. So where nothing
// is left to move, page 1 is written as it is first.
//
// The pin ends by itself, with ErrPinOutgrown, at the first commit that finds the
// WAL larger than most bytes, or less than ample room on the disk, which a kept WAL
// would go on using up; a Read that goes on then is the last one.
func (f *File) PinWAL(most int64) (p *Pin, m Mark, err error) {
	c, err := f.takeLong()
	if err != nil {
		return nil, m, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.enter()
	defer f.leave()
	if c == nil {
		if c, err = f.openReader(); err != nil {
			return nil, m, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pin %s with its WAL: %w", f.path, err), f.giveReader(c))
			p = nil
		}
	}()
	if err := f.usable(); err != nil {
		return nil, m, err
	}
	p = &Pin{file: f, c: c, most: most}
	if m, err = f.beginOnWAL(p); err != nil {
		return nil, m, err
	}
	f.wal.grown(f.path)
	if f.outgrown(p) {
		return nil, m, errors.Join(ErrPinOutgrown, c.Query("ROLLBACK", nil))
	}
	f.rmu.Lock()
	f.keepers = append(f.keepers, p)
	f.rmu.Unlock()
	return p, m, nil
}

// beginOnWAL begins p's read transaction such that it reads from the WAL. A
// checkpoint on another connection may come in between, which the second look
// shows: what is not moved then was not moved when the transaction began.
func (f *File) beginOnWAL(p *Pin) (m Mark, err error) {
	for range pinTries {
		if err := f.commit(); err != nil {
			return m, err
		}
		all, moved, err := f.frames()
		if err == nil && all == moved {
			if err = f.touch(); err == nil {
				all, _, err = f.frames()
			}
		}
		if err != nil {
			return m, err
		}
		if err := p.c.Query("BEGIN", nil); err != nil {
			return m, err
		}
		p.control, err = f.readControl(p.c) // the first read is what begins the state
		now, moved, look := f.frames()
		if err = errors.Join(err, look); err == nil && now == all && moved < all {
			return Mark{Frames: all, Control: p.control}, nil
		}
		if err = errors.Join(err, p.c.Query("ROLLBACK", nil)); err != nil {
			return m, err
		}
	}
	return m, errWALUnsteady
}

// touch writes page 1 with what it says already, so that the WAL has a frame that is
// not moved. No row and no counter of ours changes by that, only SQLite's own count
// of changes.
func (f *File) touch() error {
	if f.room.Look() == room.None {
		return f.room.Err()
	}
	version := 0
	if _, err := f.w.One("PRAGMA user_version", func(r *Row) error { version = r.ColumnInt(0); return nil }); err != nil {
		return err
	}
	return f.w.script("PRAGMA user_version = " + strconv.Itoa(version))
}

// outgrown says whether the WAL is too large for p, or for the disk.
func (f *File) outgrown(p *Pin) bool {
	return f.wal.bytes.Load() > p.most || f.room.Level() > room.Ample
}

// endOutgrown ends the pins that the WAL has outgrown. The caller holds mu, and a
// slot.
func (f *File) endOutgrown() {
	var over []*Pin
	f.rmu.Lock()
	for _, p := range f.keepers {
		if f.outgrown(p) {
			over = append(over, p)
		}
	}
	f.rmu.Unlock()
	for _, p := range over {
		p.over.Store(true)
		if p.mu.TryLock() { // else whoever reads from it looks again afterwards
			_ = p.end(ErrPinOutgrown) // it has only read
			p.mu.Unlock()
		}
	}
}

// OpenWAL opens the file's WAL for reading. No lock of SQLite's lives on it. What
// it says up to a Mark's frames stays as long as a PinWAL from before is open.
func (f *File) OpenWAL() (*os.File, error) { return os.Open(f.path + "-wal") }
