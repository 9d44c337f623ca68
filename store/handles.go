package store

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"celld/store/room"
)

// MaxOpen is how many files each of sharers Handles in this process may keep open,
// so that all of them stay within the process's descriptors. A file takes up to
// perFile: the database and its WAL for the writer and for each kept reader, and
// the shared memory. A part is left for connections, the log and the rest.
func MaxOpen(sharers int) (int, error) {
	const (
		most    = 512
		perFile = 2*(1+keepReaders) + 1
	)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	rest := max(limit.Cur/4, 256)
	if limit.Cur < rest+uint64(sharers*2*perFile) {
		return 0, fmt.Errorf("this process may open %d files, too few for %d nodes: raise the limit (ulimit -n)", limit.Cur, sharers)
	}
	return int(min((limit.Cur-rest)/uint64(sharers*perFile), most)), nil
}

// Handles keeps the files of many tenants open, at most max, and the most recently
// used of them: the idle ones go, oldest first. A file in use is never closed;
// when max are in use, who wants another one waits for one of them. So nobody
// asks for a file while holding another of the same Handles.
type Handles struct {
	schema *Schema
	max    int
	slots  *Slots
	log    *slog.Logger

	mu      sync.Mutex
	byKey   map[string]*handle
	idle    *list.List         // of *handle, least recently used first
	leaving map[string]*handle // by path: out of byKey and not closed yet, the latest
	room    sync.Cond          // a file became idle, or was closed
	closed  bool

	lost sync.Map // by key: why a file that has lost updates is not opened again

	rest map[string]uint64 // applied indexes of files that were open and are not now

	full chan *handle // files whose WAL wants moving
	done chan struct{}

	behind *committer                  // nil: every update commits
	budget *budget                     // of what is not committed; nil without behind
	disk   *room.Room                  // nil for no end of it
	fail   func(key string, err error) // hears of a file that has lost updates; nil without behind
}

type handle struct {
	key, path string
	ready     chan struct{} // closed when file or err is set
	file      *File
	err       error
	users     int
	idleAt    *list.Element // its place in idle when users == 0
	forgotten bool          // out of byKey; closes with its last user
	queued    bool          // in the checkpoint queue
	pending   bool          // in the committer's queue
	gone      chan struct{} // closed when the file is closed
}

// NewHandles keeps at most max files open. slots may be nil.
func NewHandles(schema *Schema, max int, slots *Slots, log *slog.Logger) *Handles {
	h := &Handles{
		schema: schema, max: max, slots: slots, log: log,
		byKey: make(map[string]*handle), idle: list.New(), leaving: make(map[string]*handle),
		rest: make(map[string]uint64),
		full: make(chan *handle, 64), done: make(chan struct{}),
	}
	h.room.L = &h.mu
	go h.checkpoints()
	return h
}

// Acquire returns the open file of key, opening path if it is not. The file
// stays open until release is called, once.
func (h *Handles) Acquire(key, path string) (f *File, release func(), err error) {
	h.mu.Lock()
	for !h.closed && h.byKey[key] == nil && len(h.byKey)+len(h.leaving) >= h.max && h.oldest() == nil {
		if h.idle.Len() > 0 {
			h.mu.Unlock()
			return nil, nil, h.disk.Err() // every one of them holds a transaction that cannot commit
		}
		h.room.Wait()
	}
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
		h.room.Broadcast() // to those who wait for room for this very file
		before := h.leaving[path]
		evicted := h.evict()
		h.mu.Unlock()
		h.close(evicted)
		if before != nil {
			<-before.gone // what it has not committed yet would not be seen
		}
		e.file, e.err = h.open(key, path)
		close(e.ready)
	} else {
		e.users++
		if e.idleAt != nil {
			h.idle.Remove(e.idleAt)
			e.idleAt = nil
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

func (h *Handles) open(key, path string) (*File, error) {
	if err, ok := h.lost.Load(key); ok {
		return nil, err.(error)
	}
	f, err := Open(path, h.schema)
	if err != nil {
		return nil, err
	}
	f.slots = h.slots
	f.behind = h.behind != nil
	f.budget = h.budget
	f.room = h.disk
	f.lost = func(err error) { h.lose(key, err) }
	return f, nil
}

// lose notes that key's file may lack updates that the log holds.
func (h *Handles) lose(key string, err error) {
	if _, known := h.lost.LoadOrStore(key, err); !known && h.fail != nil {
		h.fail(key, err)
	}
}

// evict takes idle files over the bound out of the table. The caller holds mu
// and closes what is returned after letting go of it.
func (h *Handles) evict() (out []*handle) {
	for len(h.byKey) > h.max {
		e := h.oldest()
		if e == nil {
			break
		}
		h.leave(e)
		h.rest[e.key] = e.file.Control().Applied // idle, so it stays that
		out = append(out, e)
	}
	return out
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
	}
	return idle
}

func (h *Handles) release(e *handle) {
	h.mu.Lock()
	e.users--
	var gone []*handle
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
		gone = []*handle{e}
	default:
		e.idleAt = h.idle.PushBack(e)
		gone = h.evict()
		h.room.Broadcast()
	}
	h.mu.Unlock()
	h.close(gone)
}

func (h *Handles) close(gone []*handle) {
	for _, e := range gone {
		if e.file != nil {
			if err := e.file.Close(); err != nil {
				h.log.Error("close tenant file", "file", e.path, "error", err)
				h.lose(e.key, fmt.Errorf("close %s: %w", e.path, err)) // nobody knows how much of it is durable
			}
		}
		h.mu.Lock()
		if h.leaving[e.path] == e {
			delete(h.leaving, e.path)
		}
		h.room.Broadcast()
		h.mu.Unlock()
		close(e.gone)
	}
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
		h.close([]*handle{e})
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

// Open is how many files are open now.
func (h *Handles) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey)
}

// Sync makes everything committed so far durable in every open file. A closed
// file is durable already.
func (h *Handles) Sync() error {
	h.mu.Lock()
	keys := make(map[string]string, len(h.byKey))
	for key, e := range h.byKey {
		keys[key] = e.path
	}
	leaving := slices.Collect(maps.Values(h.leaving))
	h.mu.Unlock()
	for _, e := range leaving {
		<-e.gone
	}
	for key, path := range keys {
		f, release, err := h.Acquire(key, path)
		if err != nil {
			return err
		}
		err = f.Sync()
		release()
		if err != nil {
			return err
		}
	}
	var lost error
	h.lost.Range(func(_, err any) bool { lost = err.(error); return false })
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
	h.room.Broadcast()
	close(h.full) // release sends only while not closed, under mu
	h.mu.Unlock()
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
		err = errors.Join(err, e.file.Close())
		close(e.gone)
	}
	for _, e := range wait {
		<-e.gone
	}
	return err
}
