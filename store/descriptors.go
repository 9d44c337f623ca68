package store

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"celld/store/fault"
)

// What SQLite holds open: a connection has the database and its WAL, and all
// connections of a file share its shared memory. When a connection is closed SQLite
// parks its descriptor of the database, for closing it might drop the locks of the
// others: the next connection takes it over, and it is closed with the last one.
const (
	perReader = 2
	perFile   = perReader + 1
)

const (
	mostFiles  = 4096 // of a process: an open file takes some 0.14 MiB of memory
	leastFiles = 8    // of each Handles, whatever the others have open
)

// Descriptors is the budget of file descriptors that all Handles of a process
// share. Each Handles is promised a few files; whatever is not promised goes to who
// asks for it. When nothing is left, readers that nobody uses are closed, then the
// file that nobody has used for the longest time, whichever Handles it belongs to,
// and who finds all files in use waits.
//
// Locks: Handles.mu or File.rmu, then mu. Reclaiming takes one Handles.mu after the
// other, and none is held meanwhile.
type Descriptors struct {
	max   int // of files and readers
	spill int // of readers above max, for long reads, which can't wait with a file in use
	clock atomic.Uint64

	waiting atomic.Int64 // who looks for room, or waits for it

	mu        sync.Mutex
	used      int
	committed int // the sum over all shares of what is used or promised, whichever is more
	shares    []*share
	changes   uint64
	changed   sync.Cond
}

// share is what one Handles has of the descriptors. A nil share is no bound.
type share struct {
	of     *Descriptors
	least  int           // is promised
	oldest atomic.Uint64 // when the file that is idle for the longest time became idle; 0 for none
	evict  func() bool   // closes that file, if there is one

	used int // under of.mu

	mu     sync.Mutex
	spares map[*File]struct{} // have readers that nobody uses
}

// ErrDescriptors refuses a long read for want of descriptors.
var ErrDescriptors = fault.New(fault.Unavailable, "busy", "too many long reads are running on this node; retry")

// NewDescriptors takes the process's limit of open files (RLIMIT_NOFILE). A quarter
// of it, and 256 at the least, is left for connections, the log and the rest.
func NewDescriptors() (*Descriptors, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("read the limit of open files: %w", err)
	}
	return descriptorsOf(limit.Cur)
}

func descriptorsOf(limit uint64) (*Descriptors, error) {
	rest := max(limit/4, 256)
	if limit < rest+leastFiles*perFile {
		return nil, fmt.Errorf("this process may open %d files, which is too few: raise the limit (ulimit -n)", limit)
	}
	// A long read has one reader; half of the rest is never theirs.
	return newDescriptors(int(min(limit-rest, mostFiles*perFile)), int(min(rest/2, 1024))), nil
}

func newDescriptors(max, spill int) *Descriptors {
	d := &Descriptors{max: max, spill: spill}
	d.changed.L = &d.mu
	return d
}

// unbounded is for Handles with a bound of their own.
func unbounded() *Descriptors { return newDescriptors(math.MaxInt/2, 0) }

// join adds a Handles, which keeps at most files open.
func (d *Descriptors) join(files int, evict func() bool) (*share, error) {
	s := &share{of: d, least: min(files, leastFiles)*perFile + keepReaders*perReader, evict: evict, spares: make(map[*File]struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	promised := s.least
	for _, other := range d.shares {
		promised += other.least
	}
	if promised > d.max {
		return nil, fmt.Errorf("this process has %d descriptors for tenants' files, too few for one more node: raise the limit (ulimit -n)", d.max)
	}
	d.committed += s.least
	d.shares = append(d.shares, s)
	return s, nil
}

// part takes s, which holds nothing any more, out again.
func (s *share) part() {
	d := s.of
	d.mu.Lock()
	d.shares = slices.DeleteFunc(d.shares, func(other *share) bool { return other == s })
	d.committed -= max(s.used, s.least)
	d.mu.Unlock()
	d.notify()
}

// take takes n descriptors if they are there without touching what others are
// promised.
func (s *share) take(n int) bool {
	if s == nil {
		return true
	}
	d := s.of
	d.mu.Lock()
	defer d.mu.Unlock()
	more := max(s.used+n, s.least) - max(s.used, s.least)
	if d.used+n > d.max || more > 0 && d.committed+more > d.max {
		return false
	}
	s.used, d.used, d.committed = s.used+n, d.used+n, d.committed+more
	return true
}

// takeLong takes the descriptors of a long read's reader. Its caller has a file in
// use, so it does not wait: it closes what is idle, or goes above the bound, or
// fails. It may close files, so the caller holds no lock and no slot.
func (s *share) takeLong(n int) error {
	if s == nil {
		return nil
	}
	for !s.take(n) {
		if s.of.reclaim(s) {
			continue
		}
		d := s.of
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.used+n > d.max+d.spill {
			return ErrDescriptors
		}
		d.committed += max(s.used+n, s.least) - max(s.used, s.least)
		s.used, d.used = s.used+n, d.used+n
		return nil
	}
	return nil
}

func (s *share) give(n int) {
	if s == nil {
		return
	}
	d := s.of
	d.mu.Lock()
	d.committed -= max(s.used, s.least) - max(s.used-n, s.least)
	s.used, d.used = s.used-n, d.used-n
	d.mu.Unlock()
	d.notify()
}

// now counts how often a file became idle; it tells which was first.
func (d *Descriptors) now() uint64 { return d.clock.Add(1) }

// notify has those who wait look again.
func (s *share) notify() {
	if s != nil {
		s.of.notify()
	}
}

func (d *Descriptors) notify() {
	if d.waiting.Load() == 0 {
		return
	}
	d.mu.Lock()
	d.changes++
	d.mu.Unlock()
	d.changed.Broadcast()
}

// await calls try until it succeeds or fails, each time after something has
// changed since the last call began.
func (d *Descriptors) await(try func() (done bool, err error)) error {
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	for {
		d.mu.Lock()
		seen := d.changes
		d.mu.Unlock()
		if done, err := try(); done || err != nil {
			return err
		}
		d.mu.Lock()
		for d.changes == seen {
			d.changed.Wait()
		}
		d.mu.Unlock()
	}
}

// reclaim closes something that is idle, of by's or of a Handles that has more than
// it is promised, and reports whether there was anything.
func (d *Descriptors) reclaim(by *share) bool {
	d.mu.Lock()
	from := make([]*share, 1, len(d.shares))
	from[0] = by
	for _, s := range d.shares {
		if s != by && s.used > s.least {
			from = append(from, s)
		}
	}
	d.mu.Unlock()
	for _, s := range from {
		if s.closeSpares() {
			return true
		}
	}
	for len(from) > 0 {
		first := 0
		for i, s := range from {
			if older(s.oldest.Load(), from[first].oldest.Load()) {
				first = i
			}
		}
		if from[first].evict() {
			return true
		}
		from = slices.Delete(from, first, first+1)
	}
	return false
}

// older compares two times of share.oldest.
func older(a, b uint64) bool { return a != 0 && (b == 0 || a < b) }

// spare notes whether f has readers that nobody uses. The caller holds f.rmu.
func (s *share) spare(f *File, has bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if has {
		s.spares[f] = struct{}{}
	} else {
		delete(s.spares, f)
	}
}

// closeSpares closes the readers of one file that has any. One whose readers were
// taken between the look and the closing is not the last word on the others.
func (s *share) closeSpares() bool {
	for {
		s.mu.Lock()
		var f *File
		for f = range s.spares {
			break
		}
		s.mu.Unlock()
		if f == nil {
			return false
		}
		if n, _ := f.closeFree(); n > 0 { // they have only read
			return true
		}
	}
}
