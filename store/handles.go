package store

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"celld/store/room"
	"celld/store/stall"
)

// Handles keeps the files of many tenants open, as many as the process's
// descriptors allow and at most max, and the most recently used of them: the idle
// ones go, oldest first. A file in use is never closed; who wants another one while
// all are in use waits for one of them. So nobody asks for a file while holding
// another of the same Handles.
type Handles struct {
	schema *Schema
	max    int
	share  *share
	slots  *Slots
	log    *slog.Logger

	mu      sync.Mutex
	byKey   map[string]*handle
	idle    *list.List         // of *handle, least recently used first
	leaving map[string]*handle // by path: out of byKey and not closed yet, the latest
	opened  int                // that hold descriptors
	closed  bool

	lost sync.Map // by key: why a file that has lost updates is not opened again

	rest map[string]uint64 // applied indexes of files that were open and are not now

	full chan *handle // files whose WAL wants moving
	done chan struct{}

	behind *committer                  // nil: every update commits
	budget *budget                     // of what is not committed; nil without behind
	disk   *room.Room                  // nil for no end of it
	watch  *stall.Watch                // of calls to the disk; nil for nobody
	fail   func(key string, err error) // hears of a file that has lost updates; nil without behind
}

type handle struct {
	key, path string
	ready     chan struct{} // closed when file or err is set
	file      *File
	err       error
	users     int
	holds     bool          // descriptors, until the file is closed
	idleAt    *list.Element // its place in idle when users == 0
	idleSince uint64        // as Descriptors.now counts
	forgotten bool          // out of byKey; closes with its last user
	queued    bool          // in the checkpoint queue
	pending   bool          // in the committer's queue
	gone      chan struct{} // closed when the file is closed
}

// NewHandles keeps at most max files open, within descriptors; 0 and nil are no
// bound. slots may be nil.
func NewHandles(schema *Schema, max int, descriptors *Descriptors, slots *Slots, log *slog.Logger) (*Handles, error) {
	if max <= 0 {
		max = math.MaxInt
	}
	if descriptors == nil {
		descriptors = unbounded()
	}
	h := &Handles{
		schema: schema, max: max, slots: slots, log: log,
		byKey: make(map[string]*handle), idle: list.New(), leaving: make(map[string]*handle),
		rest: make(map[string]uint64),
		full: make(chan *handle, 64), done: make(chan struct{}),
	}
	var err error
	if h.share, err = descriptors.join(max, h.evict); err != nil {
		return nil, err
	}
	go h.checkpoints()
	return h, nil
}

// Acquire returns the open file of key, opening path if it is not. The file
// stays open until release is called, once.
func (h *Handles) Acquire(key, path string) (f *File, release func(), err error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, nil, os.ErrClosed
	}
	e := h.byKey[key]
	if e != nil && e.path != path {
		h.mu.Unlock()
		return nil, nil, fmt.Errorf("file %s is open at %s, asked for at %s", key, e.path, path)
	}
	if e == nil {
		e = &handle{key: key, path: path, ready: make(chan struct{}), gone: make(chan struct{}), users: 1}
		h.byKey[key] = e
		before := h.leaving[path]
		h.mu.Unlock()
		e.file, e.err = h.bring(e, before)
		close(e.ready)
	} else {
		e.users++
		if e.idleAt != nil {
			h.idle.Remove(e.idleAt)
			e.idleAt = nil
			h.publish()
		}
		h.mu.Unlock()
		<-e.ready
	}
	if e.err != nil {
		err := e.err
		h.release(e)
		return nil, nil, err
	}
	return e.file, sync.OnceFunc(func() { h.release(e) }), nil
}

// Keep keeps f, key's file, open until release is called, once. Whoever calls it is
// using f, so it waits for nothing. ok is false if another file is about to take
// f's place.
func (h *Handles) Keep(key string, f *File) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil || e.file != f || h.closed {
		return nil, false
	}
	e.users++
	return sync.OnceFunc(func() { h.release(e) }), true
}

// bring opens e's file once there are descriptors for it, and once its life before,
// if there is one, is over: what it has not committed yet would not be seen.
func (h *Handles) bring(e, before *handle) (*File, error) {
	if err := h.reserve(e); err != nil {
		return nil, err
	}
	if before != nil {
		<-before.gone
	}
	return h.open(e.key, e.path)
}

// reserve takes the descriptors of e's file. What is idle is closed for them; when
// nothing is, it waits.
func (h *Handles) reserve(e *handle) error {
	if done, err := h.take(e); done || err != nil {
		return err
	}
	return h.share.of.await(func() (bool, error) {
		for {
			done, err := h.take(e)
			if done || err != nil {
				return done, err
			}
			if !h.reclaim() {
				return false, h.stuck()
			}
		}
	})
}

func (h *Handles) take(e *handle) (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false, os.ErrClosed
	}
	if h.opened >= h.max || !h.share.take(perFile) {
		return false, nil
	}
	h.opened++
	e.holds = true
	return true, nil
}

// reclaim closes something that is idle, here if the bound is this Handles' own.
func (h *Handles) reclaim() bool {
	h.mu.Lock()
	own := h.opened >= h.max
	h.mu.Unlock()
	if own {
		return h.evict()
	}
	return h.share.of.reclaim(h.share)
}

// stuck is why it is no use to wait: idle files all hold a transaction that cannot
// commit.
func (h *Handles) stuck() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle.Len() > 0 && h.oldest() == nil {
		return h.disk.Err()
	}
	return nil
}

func (h *Handles) open(key, path string) (*File, error) {
	if err, ok := h.lost.Load(key); ok {
		return nil, err.(error)
	}
	f, err := Open(path, h.schema)
	if err != nil {
		if h.disk.Look() == room.None { // SQLite makes files beside it
			return nil, h.disk.Err().Because(err)
		}
		return nil, err
	}
	f.slots, f.share = h.slots, h.share
	f.behind = h.behind != nil
	f.budget = h.budget
	f.room = h.disk
	f.disk = h.watch
	f.lost = func(err error) { h.lose(key, err) }
	return f, nil
}

// lose notes that key's file may lack updates that the log holds.
func (h *Handles) lose(key string, err error) {
	if _, known := h.lost.LoadOrStore(key, err); !known && h.fail != nil {
		h.fail(key, err)
	}
}

// evict closes the file that is idle for the longest time, and reports whether
// there was one.
func (h *Handles) evict() bool {
	h.mu.Lock()
	e := h.oldest()
	if e == nil {
		h.mu.Unlock()
		return false
	}
	h.leave(e)
	h.rest[e.key] = e.file.Control().Applied // idle, so it stays that
	h.mu.Unlock()
	_ = h.close(e) // the log and fail hear of it
	return true
}

// publish tells the other Handles for how long a file is idle here. The caller holds
// mu.
func (h *Handles) publish() {
	since := uint64(0)
	if at := h.idle.Front(); at != nil {
		since = at.Value.(*handle).idleSince
	}
	h.share.oldest.Store(since)
}

// oldest is the file that goes next, nil if none can: without disk space one with
// an open transaction stays, since its commit would fail and lose it. The caller
// holds mu.
func (h *Handles) oldest() *handle {
	full := h.disk.Level() == room.None
	for at := h.idle.Front(); at != nil; at = at.Next() {
		if e := at.Value.(*handle); !full || !e.file.open.Load() {
			return e
		}
	}
	return nil
}

// leave takes e out of the table: it is closed when its last user is done, and
// until then its file is not opened anew. The caller holds mu, and closes e if it
// was idle.
func (h *Handles) leave(e *handle) (idle bool) {
	delete(h.byKey, e.key)
	h.leaving[e.path] = e
	e.forgotten = true
	if idle = e.idleAt != nil; idle {
		h.idle.Remove(e.idleAt)
		e.idleAt = nil
		h.publish()
	}
	return idle
}

func (h *Handles) release(e *handle) {
	h.mu.Lock()
	e.users--
	var gone, idle bool
	if e.err == nil && !e.pending && h.behind != nil && e.file.open.Load() {
		e.pending = true
		h.behind.add(e)
	}
	if h.budget.pressed() {
		h.behind.hurry()
	}
	// Asked again at the next release if the queue is full, and while the file is
	// in use too: some files always are.
	if e.err == nil && !e.forgotten && !e.queued && !h.closed && e.file.wal.due() {
		select {
		case h.full <- e:
			e.queued = true
			e.users++ // the checkpoint goroutine's
		default:
		}
	}
	switch {
	case e.users > 0:
	case e.err != nil || e.forgotten:
		if h.byKey[e.key] == e {
			delete(h.byKey, e.key)
		}
		gone = true
	default:
		e.idleSince = h.share.of.now()
		e.idleAt = h.idle.PushBack(e)
		h.publish()
		idle = true
	}
	h.mu.Unlock()
	if gone {
		_ = h.close(e) // the log and fail hear of it
	}
	if idle {
		h.share.notify()
	}
}

// close closes the file of e, which is out of the table and has no users, and gives
// its descriptors back.
func (h *Handles) close(e *handle) (err error) {
	if e.file != nil {
		if err = e.file.Close(); err != nil {
			h.log.Error("close tenant file", "file", e.path, "error", err)
			h.lose(e.key, fmt.Errorf("close %s: %w", e.path, err)) // nobody knows how much of it is durable
		}
	}
	h.mu.Lock()
	if h.leaving[e.path] == e {
		delete(h.leaving, e.path)
	}
	held := e.holds
	if e.holds = false; held {
		h.opened--
	}
	h.mu.Unlock()
	if held {
		h.share.give(perFile)
	}
	close(e.gone)
	return err
}

// checkpoints moves WALs into their files, one at a time, away from the
// goroutines that apply and answer.
func (h *Handles) checkpoints() {
	defer close(h.done)
	for e := range h.full {
		if err := e.file.Checkpoint(); err != nil {
			h.log.Error("checkpoint", "file", e.path, "error", err)
		}
		h.mu.Lock()
		e.queued = false
		h.mu.Unlock()
		h.release(e)
	}
}

// Forget closes the file of key once its users are done and waits for that. The
// next Acquire opens anew, whatever lies there by then: that the old file has
// lost updates is forgotten too.
func (h *Handles) Forget(key string) {
	h.mu.Lock()
	e := h.byKey[key]
	var idle bool
	if e != nil {
		idle = h.leave(e)
	}
	delete(h.rest, key)
	before := slices.Collect(maps.Values(h.leaving)) // e among them
	h.mu.Unlock()
	if idle {
		_ = h.close(e) // the log and fail hear of it
	}
	for _, l := range before {
		if l.key == key {
			<-l.gone
		}
	}
	h.lost.Delete(key)
}

// WriteBehind lets a transaction stay open over many updates, for at most age
// after its first. It is called before the first Acquire. fail hears of a file
// whose open transaction could not be committed, by whomever: what it held is in
// the log alone, and the file is not opened again.
func (h *Handles) WriteBehind(age time.Duration, fail func(key string, err error)) {
	h.fail = fail
	h.budget = &budget{max: allDirty}
	h.behind = newCommitter(age, h.budget, func(e *handle) error {
		h.mu.Lock()
		e.pending = false // first, so that an update from now on queues it again
		h.mu.Unlock()
		err := e.file.Commit() // fail hears of it
		if errors.Is(err, room.ErrFull) {
			h.mu.Lock()
			if !e.pending {
				e.pending = true
				h.behind.add(e)
			}
			h.mu.Unlock()
			return err
		}
		if errors.Is(err, os.ErrClosed) { // a file that was closed has committed
			return nil
		}
		return err
	})
}

// KeepRoom has transactions stay open while disk has no room: a commit that fails
// would lose them. It is called before the first Acquire.
func (h *Handles) KeepRoom(disk *room.Room) { h.disk = disk }

// WatchDisk has w watch the calls that may hang. It is called before the first
// Acquire.
func (h *Handles) WatchDisk(w *stall.Watch) { h.watch = w }

// Applied is the applied index of key's file, if the file is open or was before:
// nothing else changes it.
func (h *Handles) Applied(key string) (index uint64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[key]; e != nil {
		select {
		case <-e.ready:
			if e.err == nil {
				return e.file.Control().Applied, true
			}
		default:
		}
	}
	index, known = h.rest[key]
	return index, known
}

// Holds reports whether key's file is open and commits later than it is updated:
// while disk has no room, updates of it wait in memory.
func (h *Handles) Holds(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil || h.behind == nil || h.disk == nil {
		return false
	}
	select {
	case <-e.ready:
		return e.err == nil
	default:
		return false
	}
}

// Open is how many files are open now.
func (h *Handles) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened
}

// Sync makes all updates so far durable in every open file, those of keys excepted
// for which givenUp says that nobody relies on their file any more; nil for none. A
// closed file is durable already. Files stay as recently used as they were, and none
// is opened.
func (h *Handles) Sync(givenUp func(key string) bool) error {
	if givenUp == nil {
		givenUp = func(string) bool { return false }
	}
	h.mu.Lock()
	open := slices.Collect(maps.Values(h.byKey))
	leaving := slices.Collect(maps.Values(h.leaving))
	h.mu.Unlock()
	for _, e := range leaving {
		<-e.gone
	}
	for _, e := range open {
		select {
		case <-e.ready:
		default:
			continue // nobody has updated it
		}
		if e.err != nil {
			continue
		}
		err := e.file.Sync()
		if errors.Is(err, os.ErrClosed) {
			<-e.gone // durable, or lost
		} else if err != nil && !givenUp(e.key) { // asked afterwards: it may be given up over this very error
			return err
		}
	}
	var lost error
	h.lost.Range(func(key, err any) bool {
		if !givenUp(key.(string)) {
			lost = err.(error)
		}
		return lost == nil
	})
	return lost
}

// Close waits for the users of every file and closes them all.
func (h *Handles) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.full) // release sends only while not closed, under mu
	h.mu.Unlock()
	h.share.notify()
	<-h.done
	if h.behind != nil {
		h.behind.close()
	}
	h.mu.Lock()
	var idle []*handle
	for _, e := range h.byKey {
		if h.leave(e) {
			idle = append(idle, e)
		}
	}
	wait := slices.Collect(maps.Values(h.leaving))
	h.mu.Unlock()
	var err error
	for _, e := range idle {
		err = errors.Join(err, h.close(e))
	}
	for _, e := range wait {
		<-e.gone
	}
	h.share.part()
	return err
}
