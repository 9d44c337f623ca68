package raftfsm

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// leadership is one term of leading.
type leadership struct {
	term      uint64
	lost      chan struct{} // closed when it is over
	confirmed chan struct{} // closed when an entry of the term has been applied here
	since     time.Time     // of that; set before confirmed is closed
}

func (l *leadership) isConfirmed() bool {
	select {
	case <-l.confirmed:
		return true
	default:
		return false
	}
}

// leader follows this member's leaderships. One goroutine does it: it reads
// Raft's notifications and, for each term, has an empty entry logged, so that
// the term's first entry is applied even if nobody writes.
type leader struct {
	raft     *raft.Raft
	progress *progress
	retry    time.Duration
	current  atomic.Pointer[leadership]
	stopping chan struct{}
	finished chan struct{}
}

func newLeader(r *raft.Raft, p *progress, retry time.Duration) *leader {
	l := &leader{raft: r, progress: p, retry: retry, stopping: make(chan struct{}), finished: make(chan struct{})}
	go l.follow()
	return l
}

// leading returns the term in which this member leads. The term is read on both
// sides of the state: terms only grow and a leader's never does, so if both are
// equal the state belongs to them.
func leading(r *raft.Raft) (uint64, bool) {
	term := r.CurrentTerm()
	ok := r.State() == raft.Leader && r.CurrentTerm() == term
	return term, ok
}

// now returns the current leadership, nil if there is none.
func (l *leader) now() *leadership {
	ls := l.current.Load()
	if ls == nil {
		return nil
	}
	if term, ok := leading(l.raft); !ok || term != ls.term {
		return nil
	}
	return ls
}

// maxLeaderRetry bounds how long a new leader waits before it logs an empty entry again.
const maxLeaderRetry = time.Minute

func (l *leader) follow() {
	defer close(l.finished)
	defer l.end()
	wait := l.retry
	for {
		select {
		case leads := <-l.raft.LeaderCh():
			l.turn(leads)
			wait = l.retry
			continue
		case <-l.stopping:
			return
		default:
		}
		var applied <-chan struct{}
		var again <-chan time.Time
		if ls := l.current.Load(); ls != nil && !ls.isConfirmed() {
			done, next := l.progress.appliedIn(ls.term)
			if done {
				ls.since, wait = time.Now(), l.retry
				close(ls.confirmed)
			} else {
				applied = next
				// Raft refuses entries while leadership is being handed over. Less and less
				// often: where apply waits, for disk space, each of them is logged and waits too.
				l.raft.Apply(assembleEntry(nil), 0)
				again = time.After(wait)
				wait = min(2*wait, maxLeaderRetry)
			}
		}
		select {
		case leads := <-l.raft.LeaderCh():
			l.turn(leads)
			wait = l.retry
		case <-applied:
		case <-again:
		case <-l.stopping:
			return
		}
	}
}

// turn notes that leadership came or went. Raft keeps only the latest
// notification, so one leadership may follow another directly.
func (l *leader) turn(leads bool) {
	l.end()
	if !leads {
		return
	}
	if term, ok := leading(l.raft); ok {
		l.current.Store(&leadership{term: term, lost: make(chan struct{}), confirmed: make(chan struct{})})
	}
}

func (l *leader) end() {
	if ls := l.current.Swap(nil); ls != nil {
		close(ls.lost)
	}
}

// stop ends the goroutine.
func (l *leader) stop() {
	close(l.stopping)
	<-l.finished
}
