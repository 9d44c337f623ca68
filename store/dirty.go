package store

import (
	"os"
	"sync/atomic"
)

// Bounds of what is not committed yet. Pages that a transaction has changed stay
// in memory until it commits (cache_spill is off).
const (
	commitEvery = 2048     // commands in a file's open transaction
	fileDirty   = 4 << 20  // bytes of it
	allDirty    = 64 << 20 // bytes of the open transactions of all files of one Handles
)

// budget counts the bytes that open transactions hold in memory, by estimate.
type budget struct {
	max  int64
	used atomic.Int64
}

// pressed reports whether the oldest transactions should commit before their time.
func (b *budget) pressed() bool { return b != nil && b.used.Load() > b.max/2 }

// rowPages is how many pages a statement of ours changes at the most, roughly: it
// writes one row, in a table of up to four trees, and a page that is full is split.
const rowPages = 5

const pageSize = 4096

// charge estimates what the open transaction holds, and reports whether it is to
// commit. All pages of the file and what was added to it are the upper bound; a
// statement changes a few pages. The caller holds mu.
func (f *File) charge() (full bool) {
	held := min(f.w.statements*rowPages*pageSize, f.size+2*f.w.payload+16*pageSize)
	full = f.dirty >= commitEvery || held >= fileDirty
	if f.budget != nil {
		full = f.budget.used.Add(held-f.charged) > f.budget.max || full
		f.charged = held
	}
	return full
}

func (f *File) uncharge() {
	f.w.statements, f.w.payload = 0, 0
	if f.budget != nil {
		f.budget.used.Add(-f.charged)
		f.charged = 0
	}
}

// measure takes the file's size for the estimates to come.
func (f *File) measure() error {
	if !f.behind {
		return nil
	}
	_, err := f.w.One("PRAGMA page_count", func(r *Row) error { f.size = r.ColumnInt64(0) * pageSize; return nil })
	return err
}

// checkpointBytes is how far a file's WAL grows before it is moved into the file.
const checkpointBytes = 4 << 20

// wal is how large a file's WAL is and when it wants moving. Its size is that of
// its file, which a commit cuts when the WAL has begun anew.
type wal struct {
	bytes atomic.Int64
	goal  atomic.Int64 // the size at which a checkpoint is asked for, less checkpointBytes
}

// grown looks at the WAL's size after a commit.
func (w *wal) grown(path string) {
	if info, err := os.Stat(path + "-wal"); err == nil { // else it is what it was
		w.bytes.Store(info.Size())
	}
}

// due reports whether a checkpoint is to be made.
func (w *wal) due() bool { return w.bytes.Load() >= w.goal.Load()+checkpointBytes }

// asked notes that one is being made: the next one is due when the WAL has grown
// again, also if a reader keeps this one from moving everything.
func (w *wal) asked() { w.goal.Store(w.bytes.Load()) }

// moved notes how it ended. With all of the WAL moved the next commit begins it
// anew.
func (w *wal) moved(all bool) {
	if all {
		w.bytes.Store(0)
		w.goal.Store(0)
	}
}
