package raftfsm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// readIndex answers linearizable reads. One goroutine makes rounds: it takes all
// readers that wait, and for all of them together
//
//  1. makes sure that an entry of the leader's own term has been applied,
//  2. samples the commit index,
//  3. has a majority answer, in this term, requests sent after the sample,
//  4. checks that it still leads in that term.
//
// Each reader then waits until the sampled index has been applied here.
//
// Readers wait for a round, not each for an answer of its own: one channel is
// closed for all of them. Before a round samples it lets other goroutines run once,
// so that on a busy machine the readers that are about to ask ask together; on an
// idle one that costs nothing.
type readIndex struct {
	raft    *raft.Raft
	id      raft.ServerID
	leader  *leader
	acks    *acks
	metrics *metrics

	mu   sync.Mutex
	next *readRound    // whom readers join; nil while nobody waits
	wake chan struct{} // holds one

	stopping chan struct{}
	finished chan struct{}
}

// readRound is one confirmation and all who wait for it.
type readRound struct {
	readers int // changes under mu until the round begins
	done    chan struct{}
	// Valid after done.
	index uint64
	err   error
}

const (
	// maxReaders bounds how many readers wait for a round.
	maxReaders = 1 << 16
	// maxRound bounds how long a round waits for a majority. A reader waits for at
	// most two: one that it came too late for, and its own.
	maxRound = 2 * time.Second
	// maxCatchUp bounds how long a reader waits for what the round found.
	maxCatchUp = 2 * time.Second
)

// errNoMajority says why a round came to nothing.
var errNoMajority = errors.New("a majority did not confirm the leader in time")

func newReadIndex(r *raft.Raft, id raft.ServerID, l *leader, a *acks, m *metrics) *readIndex {
	ri := &readIndex{
		raft: r, id: id, leader: l, acks: a, metrics: m,
		wake: make(chan struct{}, 1), stopping: make(chan struct{}), finished: make(chan struct{}),
	}
	go ri.serve()
	return ri
}

// confirm returns a commit index that is at least what was committed before the
// call.
func (ri *readIndex) confirm(ctx context.Context) (uint64, error) {
	if ri.leader.now() == nil {
		return 0, ErrNotLeader
	}
	ri.mu.Lock()
	round, first := ri.next, ri.next == nil
	if first {
		round = &readRound{done: make(chan struct{})}
		ri.next = round
	}
	if round.readers >= maxReaders {
		ri.mu.Unlock()
		return 0, ErrBusy
	}
	round.readers++
	ri.mu.Unlock()
	if first {
		select {
		case ri.wake <- struct{}{}:
		default:
		}
	}
	select {
	case <-round.done:
		return round.index, round.err
	case <-ctx.Done():
		return 0, ErrBehind.Because(context.Cause(ctx))
	case <-ri.finished:
		return 0, ErrNotLeader
	}
}

func (ri *readIndex) serve() {
	defer close(ri.finished)
	late := time.NewTimer(maxRound)
	defer late.Stop()
	for {
		select {
		case <-ri.wake:
		case <-ri.stopping:
			return
		}
		runtime.Gosched()
		ri.mu.Lock()
		round := ri.next
		ri.next = nil
		ri.mu.Unlock()
		if round == nil {
			continue
		}
		late.Reset(maxRound)
		round.index, round.err = ri.confirmNow(late.C)
		ri.metrics.readRounds.Inc()
		close(round.done)
	}
}

// confirmNow makes a round; late ends it.
func (ri *readIndex) confirmNow(late <-chan time.Time) (uint64, error) {
	ls := ri.leader.now()
	if ls == nil {
		return 0, ErrNotLeader
	}
	select {
	case <-ls.confirmed:
	case <-ls.lost:
		return 0, ErrNotLeader
	case <-late:
		return 0, ErrNotLeader.Because(errNoMajority)
	case <-ri.stopping:
		return 0, ErrNotLeader
	}
	index := ri.raft.CommitIndex()
	peers, need := ri.voters()
	round := ri.acks.begin(ls.term, peers, need)
	defer ri.acks.end()
	if need > 0 {
		// Makes the library send a heartbeat to every peer now; what it thinks of
		// the answers does not matter.
		ri.raft.VerifyLeader()
	}
	select {
	case <-round.done:
	case <-ls.lost:
		return 0, ErrNotLeader
	case <-late:
		return 0, ErrNotLeader.Because(errNoMajority)
	case <-ri.stopping:
		return 0, ErrNotLeader
	}
	if term, ok := leading(ri.raft); !ok || term != ls.term {
		return 0, ErrNotLeader
	}
	return index, nil
}

// voters returns the other voters and how many of them make a majority together
// with this member.
func (ri *readIndex) voters() ([]raft.ServerID, int) {
	var peers []raft.ServerID
	all, self := 0, 0
	for _, s := range ri.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		all++
		if s.ID == ri.id {
			self = 1
		} else {
			peers = append(peers, s.ID)
		}
	}
	return peers, all/2 + 1 - self
}

func (ri *readIndex) stop() {
	close(ri.stopping)
	<-ri.finished
}
