package raftfsm

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"celld/store/failpoint"
	"celld/store/room"
	"celld/store/stall"
)

// logStore is the log on disk with three things around it: recent entries stay
// in memory, because each of them is read again for every follower and for
// apply; entries that no FSM gets are noted; and a disk that hangs or fails ends
// the member, because Raft's main loop waits for the disk and could not even
// hand leadership over.
type logStore struct {
	raft.LogStore
	path     string
	progress *progress
	stall    time.Duration
	fail     func(error)
	recent   recentLogs
	bytes    atomic.Int64 // of entries stored by this process

	room   *room.Room
	cutOff bool // a tail was deleted and what replaces it is still to come; Raft's main loop only
}

// refuses says no to a write before the disk does: then nothing was touched, and
// the member goes on without it. A follower appears to its leader like one that
// is slow; a leader steps down. But after a tail has been deleted Raft counts on
// the entries that replace it; and entries without commands are stored always, so
// that a leader of a full group can confirm that it leads, and reads go on.
func (s *logStore) refuses(logs []*raft.Log) error {
	if s.room.Look() != room.None || s.cutOff || logs != nil && !haveCommands(logs) {
		return nil
	}
	return s.room.Err()
}

// logFile is the log's name in a member's folder.
const logFile = "log.db"

func haveCommands(logs []*raft.Log) bool {
	empty := assembleEntry(nil)
	return slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogCommand && !bytes.Equal(l.Data, empty) })
}

func openLog(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, logFile)
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(), MsgpackUseNewTimeFormat: true})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return store, nil
}

// watched runs a write to the log's disk under the watchdog.
func (s *logStore) watched(what string, write func() error) error {
	dog := watchdog{step: s.stall / stallTicks, left: stallTicks, hung: func() {
		s.fail(&stall.Error{Call: stall.Call{What: what, Path: s.path}, After: s.stall})
	}}
	dog.start(time.Now())
	defer dog.stop()
	if err := write(); err != nil {
		s.fail(fmt.Errorf("%s: %w", what, err))
		return err
	}
	return nil
}

// stallTicks is in how many ticks the watchdog counts a stall.
const stallTicks = 5

// watchdog calls hung after a number of ticks, unless it is stopped before. A
// tick that comes much later than it was asked for does not count: then it was
// the process that stood still, or its machine, and not the disk.
type watchdog struct {
	step time.Duration
	hung func()

	mu    sync.Mutex
	timer *time.Timer
	asked time.Time // when the tick to come was asked for
	left  int       // ticks; 0 after the last one and after stop
}

func (w *watchdog) start(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = now
	w.timer = time.AfterFunc(w.step, func() { w.tick(time.Now()) })
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = 0
	w.timer.Stop()
}

func (w *watchdog) tick(now time.Time) {
	w.mu.Lock()
	if w.left == 0 {
		w.mu.Unlock()
		return
	}
	if now.Sub(w.asked) < 2*w.step {
		w.left--
	}
	last := w.left == 0
	if !last {
		w.asked = now
		w.timer.Reset(w.step)
	}
	w.mu.Unlock()
	if last {
		w.hung()
	}
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if err := s.refuses(logs); err != nil {
		return err
	}
	err := s.watched("storing log entries", func() error { return s.LogStore.StoreLogs(logs) })
	if err != nil {
		return err
	}
	failpoint.Here(failpoint.LogStored)
	s.cutOff = false
	for _, l := range logs {
		s.bytes.Add(int64(len(l.Data)))
		s.progress.stored(l)
		s.recent.add(l)
	}
	return nil
}

// GetLog implements raft.LogStore.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	if s.recent.get(index, l) {
		return nil
	}
	if err := s.LogStore.GetLog(index, l); err != nil {
		return err
	}
	s.progress.seen(l)
	return nil
}

// DeleteRange implements raft.LogStore. It is called for the head of the log
// behind a snapshot and for a tail that another leader replaces.
func (s *logStore) DeleteRange(low, high uint64) error {
	failpoint.Here(failpoint.LogCut)
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	tail := high >= last
	if tail {
		if err := s.refuses(nil); err != nil {
			return err
		}
	}
	s.recent.drop(low, high)
	if tail {
		s.progress.cutFrom(low)
		s.cutOff = true
	}
	return s.watched("deleting log entries", func() error { return s.LogStore.DeleteRange(low, high) })
}

// Bounds of what recentLogs keeps.
const (
	recentEntries = 512
	recentBytes   = 8 << 20
)

// recentLogs is a ring of the latest entries.
type recentLogs struct {
	mu    sync.RWMutex
	ring  [recentEntries]raft.Log // an entry at its index modulo the length; index 0 is none
	low   uint64                  // none below it is kept
	bytes int
}

func (r *recentLogs) add(l *raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.ring[l.Index%recentEntries]
	r.bytes += len(l.Data) - len(slot.Data)
	*slot = *l
	if r.low == 0 || l.Index < r.low {
		r.low = l.Index
	}
	if l.Index >= recentEntries {
		r.low = max(r.low, l.Index-recentEntries+1) // what was there has been overwritten
	}
	for ; r.bytes > recentBytes && r.low < l.Index; r.low++ {
		r.remove(r.low)
	}
}

func (r *recentLogs) remove(index uint64) {
	if slot := &r.ring[index%recentEntries]; slot.Index == index {
		r.bytes -= len(slot.Data)
		*slot = raft.Log{}
	}
}

func (r *recentLogs) get(index uint64, l *raft.Log) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if index == 0 || r.ring[index%recentEntries].Index != index {
		return false
	}
	*l = r.ring[index%recentEntries]
	return true
}

func (r *recentLogs) drop(low, high uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ring {
		if at := r.ring[i].Index; at >= low && at <= high {
			r.remove(at)
		}
	}
}
