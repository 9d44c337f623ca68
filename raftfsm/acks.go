package raftfsm

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// acks knows which peers have answered requests that were sent after a given
// moment. Moments are numbers: begin counts them up, and a request belongs to
// the moment that was current before it was sent. The library's own check of
// leadership also counts answers to requests sent before it, which may be as old
// as the network is slow.
type acks struct {
	moment atomic.Uint64

	mu    sync.Mutex
	round *ackRound // the one that is waited for
}

type ackRound struct {
	moment, term uint64
	waits        map[raft.ServerID]bool // voters that have not answered
	need         int
	done         chan struct{}
}

// begin starts to wait for need of voters to answer, in term, requests sent from
// now on. One round at a time.
func (a *acks) begin(term uint64, voters []raft.Server, need int) *ackRound {
	r := &ackRound{term: term, need: need, waits: make(map[raft.ServerID]bool, len(voters)), done: make(chan struct{})}
	for _, v := range voters {
		r.waits[v.ID] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.moment = a.moment.Add(1)
	a.round = r
	if need <= 0 {
		close(r.done)
		a.round = nil
	}
	return r
}

// end forgets the round.
func (a *acks) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.round = nil
}

// sending is called before a request is sent.
func (a *acks) sending() (moment uint64) { return a.moment.Load() }

// answered notes a peer's answer to a request of moment. An answer in the
// request's own term accepts the sender as that term's leader, whether or not
// the logs match.
func (a *acks) answered(peer raft.ServerID, moment uint64, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if resp.Term != req.Term {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.round
	if r == nil || moment < r.moment || req.Term != r.term || !r.waits[peer] {
		return
	}
	delete(r.waits, peer)
	if r.need--; r.need == 0 {
		close(r.done)
		a.round = nil
	}
}
