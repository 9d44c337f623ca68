package raftfsm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// beats sends the heartbeats of rounds: to whom it is told, at once. Raft's own go
// on beside them. A heartbeat says that this member leads a term and nothing else,
// so whoever led the term once may send it at any time.
//
// Each voter has a goroutine, which waits for one answer at a time. Its methods but
// end are for one goroutine.
type beats struct {
	send   func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error
	sender raft.RPCHeader
	term   atomic.Uint64
	failed chan struct{} // holds one: somebody could not be asked
	rest   time.Duration // the longest pause after a failure

	order []*beat // whom to ask first
	work  sync.WaitGroup
}

// beat is one voter.
type beat struct {
	id      raft.ServerID
	address raft.ServerAddress
	wake    chan struct{} // holds one
	asked   bool          // in this round
	busy    atomic.Bool   // an answer is outstanding, or an attempt has failed just now
	quit    chan struct{}
}

// firstRest is the pause after a first failure; it doubles with each further one.
const firstRest = 10 * time.Millisecond

func newBeats(t *Transport, id raft.ServerID, rest time.Duration) *beats {
	return &beats{send: t.AppendEntries, rest: rest, failed: make(chan struct{}, 1),
		sender: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: t.EncodePeer(id, t.LocalAddr())}}
}

// begin begins a round: it sets whom there is to ask, and in which term.
func (b *beats) begin(term uint64, voters []raft.Server) {
	b.term.Store(term)
	select {
	case <-b.failed: // of an earlier round
	default:
	}
	b.order = slices.DeleteFunc(b.order, func(one *beat) bool {
		gone := !slices.ContainsFunc(voters, one.is)
		if gone {
			close(one.quit)
		}
		return gone
	})
	for _, one := range b.order {
		one.asked = false
	}
	if len(b.order) == len(voters) {
		return
	}
	for _, v := range voters {
		if !slices.ContainsFunc(b.order, func(one *beat) bool { return one.is(v) }) {
			one := &beat{id: v.ID, address: v.Address, wake: make(chan struct{}, 1), quit: make(chan struct{})}
			b.order = append(b.order, one)
			b.work.Go(func() { b.run(one) })
		}
	}
}

func (o *beat) is(s raft.Server) bool { return o.id == s.ID && o.address == s.Address }

// ask asks n of the voters, first those who owe no answer. One who does is asked
// as soon as that has come.
func (b *beats) ask(n int) {
	for _, busy := range []bool{false, true} {
		for _, one := range b.order {
			if n > 0 && !one.asked && one.busy.Load() == busy {
				one.ask()
				n--
			}
		}
	}
}

// askRest asks whoever has not been asked in this round. Those who were, and have
// not answered, come last from now on.
func (b *beats) askRest() {
	slices.SortStableFunc(b.order, func(x, y *beat) int { return x.place() - y.place() })
	b.ask(len(b.order))
}

// place is 1 for whom the round waits in vain.
func (o *beat) place() int {
	if o.asked && o.busy.Load() {
		return 1
	}
	return 0
}

func (o *beat) ask() {
	o.asked = true
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run is a voter's goroutine.
func (b *beats) run(o *beat) {
	timer := time.NewTimer(b.rest)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-o.wake:
		case <-o.quit:
			return
		}
		o.busy.Store(true)
		req := raft.AppendEntriesRequest{RPCHeader: b.sender, Term: b.term.Load()}
		// The answer counts where the transport sees it. Raft logs whom it can't reach.
		if err := b.send(o.id, o.address, &req, new(raft.AppendEntriesResponse)); err == nil {
			failures = 0
		} else {
			select {
			case b.failed <- struct{}{}:
			default:
			}
			timer.Reset(min(firstRest<<min(failures, 10), b.rest))
			failures++
			select {
			case <-timer.C:
			case <-o.quit:
				return
			}
		}
		o.busy.Store(false)
	}
}

// stop has all goroutines end; an answer that one of them waits for is bounded by
// the transport's timeout and ends with the transport.
func (b *beats) stop() {
	for _, one := range b.order {
		close(one.quit)
	}
	b.order = nil
}

// end waits for them.
func (b *beats) end() { b.work.Wait() }
