package raftfsm

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// progress knows how far this member has applied the log, and who waits for it.
//
// Raft hands no-ops and barriers to no FSM, so the applied index stops short of
// a commit index that ends in some. Their indexes are noted as they are stored
// or read; a wait for a committed index ends when nothing but such entries lies
// between.
type progress struct {
	applied atomic.Uint64
	commit  func() uint64 // Raft's commit index

	mu      sync.Mutex
	silent  []uint64 // ascending, above applied
	waiters []*waiter
	term    uint64        // of the last applied entry
	newTerm chan struct{} // closed when term grows
}

type waiter struct {
	index uint64
	done  chan struct{}
}

func newProgress(applied uint64, commit func() uint64) *progress {
	p := &progress{commit: commit, newTerm: make(chan struct{})}
	p.applied.Store(applied)
	return p
}

// advance notes that everything up to index has been applied, the last of it in
// term.
func (p *progress) advance(index, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied.Store(index)
	n := 0
	for n < len(p.silent) && p.silent[n] <= index {
		n++
	}
	p.silent = slices.Delete(p.silent, 0, n)
	if term > p.term {
		p.term = term
		close(p.newTerm)
		p.newTerm = make(chan struct{})
	}
	if len(p.waiters) > 0 {
		p.waiters = slices.DeleteFunc(p.waiters, func(w *waiter) bool {
			if !p.reached(w.index) {
				return false
			}
			close(w.done)
			return true
		})
	}
}

// reached is called with mu held.
func (p *progress) reached(index uint64) bool {
	at := p.applied.Load()
	if at >= index {
		return true
	}
	for _, s := range p.silent {
		if s != at+1 {
			return false
		}
		if at = s; at >= index {
			// What lies here but is not committed may yet be replaced.
			return p.commit() >= index
		}
	}
	return false
}

// has reports whether index has been applied.
func (p *progress) has(index uint64) bool {
	if p.applied.Load() >= index {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached(index)
}

// wait returns when index has been applied, or with the cause of ctx's end, or
// when stop is closed.
func (p *progress) wait(ctx context.Context, index uint64, stop <-chan struct{}) error {
	if p.applied.Load() >= index {
		return nil
	}
	p.mu.Lock()
	if p.reached(index) {
		p.mu.Unlock()
		return nil
	}
	w := &waiter{index: index, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.forget(w)
		return context.Cause(ctx)
	case <-stop:
		p.forget(w)
		return errStopped
	}
}

func (p *progress) forget(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
	}
}

// appliedIn reports whether an entry of term has been applied; if not, the
// channel closes when a later term's first entry has been.
func (p *progress) appliedIn(term uint64) (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term >= term, p.newTerm
}

// stored notes an entry that was appended to the log: whatever was at its index
// and behind it is gone.
func (p *progress) stored(l *raft.Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut(l.Index)
	if silent(l) {
		p.silent = append(p.silent, l.Index)
	}
}

// cutFrom notes that the log was cut at and above index.
func (p *progress) cutFrom(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut(index)
}

func (p *progress) cut(index uint64) {
	n := len(p.silent)
	for n > 0 && p.silent[n-1] >= index {
		n--
	}
	p.silent = p.silent[:n]
}

// seen notes an entry that was read from the log: after a start the log holds
// some that nobody saw being stored.
func (p *progress) seen(l *raft.Log) {
	if !silent(l) || l.Index <= p.applied.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, there := slices.BinarySearch(p.silent, l.Index); !there && l.Index > p.applied.Load() {
		p.silent = slices.Insert(p.silent, i, l.Index)
	}
}

// silent reports whether Raft keeps an entry from the FSM.
func silent(l *raft.Log) bool { return l.Type != raft.LogCommand && l.Type != raft.LogConfiguration }
