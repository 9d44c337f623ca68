package raftfsm

import (
	"context"
	"sync"

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
type readIndex struct {
	raft    *raft.Raft
	id      raft.ServerID
	leader  *leader
	acks    *acks
	metrics *metrics

	mu      sync.Mutex
	waiting []chan readAnswer
	wake    chan struct{} // holds one

	stopping chan struct{}
	finished chan struct{}
}

type readAnswer struct {
	index uint64
	err   error
}

// maxReaders bounds how many readers wait for a round.
const maxReaders = 1 << 16

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
	answer := make(chan readAnswer, 1)
	ri.mu.Lock()
	if len(ri.waiting) >= maxReaders {
		ri.mu.Unlock()
		return 0, ErrBusy
	}
	ri.waiting = append(ri.waiting, answer)
	ri.mu.Unlock()
	select {
	case ri.wake <- struct{}{}:
	default:
	}
	select {
	case a := <-answer:
		return a.index, a.err
	case <-ctx.Done():
		return 0, ErrBehind.Because(context.Cause(ctx))
	case <-ri.finished:
		return 0, ErrNotLeader
	}
}

func (ri *readIndex) serve() {
	defer close(ri.finished)
	for {
		select {
		case <-ri.wake:
		case <-ri.stopping:
			return
		}
		ri.mu.Lock()
		readers := ri.waiting
		ri.waiting = nil
		ri.mu.Unlock()
		if len(readers) == 0 {
			continue
		}
		index, err := ri.round()
		ri.metrics.readRounds.Inc()
		for _, r := range readers {
			r <- readAnswer{index, err}
		}
	}
}

func (ri *readIndex) round() (uint64, error) {
	ls := ri.leader.now()
	if ls == nil {
		return 0, ErrNotLeader
	}
	select {
	case <-ls.confirmed:
	case <-ls.lost:
		return 0, ErrNotLeader
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
