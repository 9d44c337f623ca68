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
//  3. has a majority answer, in this term, heartbeats sent after the sample,
//  4. checks that it still leads in that term.
//
// Each reader then waits until the sampled index has been applied here.
//
// Readers wait for a round, not each for an answer of its own: one channel is
// closed for all of them. Before a round samples it lets other goroutines run once,
// so that on a busy machine the readers that are about to ask ask together; on an
// idle one that costs nothing. Where many readers share a round a round is made for
// less CPU: the next one begins when as many readers wait again or some time has passed,
// more where rounds take long, and asks no more voters than it needs, the others only when those take unusually long.
type readIndex struct {
	raft    *raft.Raft
	id      raft.ServerID
	leader  *leader
	acks    *acks
	beats   *beats
	metrics *metrics

	begun   time.Time     // the last round
	readers int           // of the last round
	usual   time.Duration // how long a round takes

	mu     sync.Mutex
	next   *readRound    // whom readers join; nil while nobody waits
	enough int           // so many readers need not wait for more
	wake   chan struct{} // holds one
	full   chan struct{} // holds one: enough wait for the next round

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
	// crowd is how many readers a round has from which on rounds are made for less.
	crowd = 4
	// pace is how many times as long as a round usually takes those are apart, up to
	// maxPace, unless as many readers wait as the last one had.
	pace    = 3
	maxPace = 3 * time.Millisecond
	// maxPatience bounds how long a round waits before it asks the other voters too.
	maxPatience = 10 * time.Millisecond
)

// errNoMajority says why a round came to nothing.
var errNoMajority = errors.New("a majority did not confirm the leader in time")

func newReadIndex(r *raft.Raft, id raft.ServerID, l *leader, t *Transport, rest time.Duration, m *metrics) *readIndex {
	ri := &readIndex{
		raft: r, id: id, leader: l, acks: &t.acks, beats: newBeats(t, id, rest), metrics: m,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stopping: make(chan struct{}), finished: make(chan struct{}),
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
	round, first, err := ri.join()
	if err != nil {
		return 0, err
	}
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

// join has a reader wait for the next round, perhaps as its first.
func (ri *readIndex) join() (round *readRound, first bool, err error) {
	ri.mu.Lock()
	defer ri.mu.Unlock()
	if first = ri.next == nil; first {
		ri.next = &readRound{done: make(chan struct{})}
	}
	round = ri.next
	if round.readers >= maxReaders {
		return nil, false, ErrBusy
	}
	if round.readers++; round.readers == ri.enough {
		ri.full <- struct{}{} // has room: it is emptied with each round
	}
	return round, first, nil
}

func (ri *readIndex) serve() {
	defer close(ri.finished)
	defer ri.beats.stop()
	soon, late := time.NewTimer(maxRound), time.NewTimer(maxRound)
	defer soon.Stop()
	defer late.Stop()
	for {
		select {
		case <-ri.wake:
		case <-ri.stopping:
			return
		}
		if !ri.gather(soon) {
			return
		}
		round := ri.take()
		if round == nil {
			continue
		}
		late.Reset(maxRound)
		ri.begun = time.Now()
		round.index, round.err = ri.confirmNow(round.readers, soon, late.C)
		ri.readers = round.readers
		ri.metrics.readRounds.Inc()
		close(round.done)
	}
}

// take begins the next round: nobody joins it any more.
func (ri *readIndex) take() *readRound {
	ri.mu.Lock()
	defer ri.mu.Unlock()
	round := ri.next
	if ri.next = nil; round == nil {
		return nil
	}
	ri.enough = max(crowd, round.readers)
	select {
	case <-ri.full:
	default:
	}
	return round
}

// pause is how long the next round waits for more readers.
func (ri *readIndex) pause(now time.Time) time.Duration {
	if ri.readers < crowd {
		return 0
	}
	return max(0, min(pace*ri.usual, maxPace)-now.Sub(ri.begun))
}

// gather lets readers come. It returns false when there are no more rounds.
func (ri *readIndex) gather(timer *time.Timer) bool {
	pause := ri.pause(time.Now())
	if pause == 0 {
		runtime.Gosched()
		return true
	}
	timer.Reset(pause)
	select {
	case <-timer.C:
		return true
	case <-ri.full:
		return true
	case <-ri.stopping:
		return false
	}
}

// confirmNow makes a round; late ends it, and timer is there for it to use.
func (ri *readIndex) confirmNow(readers int, timer *time.Timer, late <-chan time.Time) (uint64, error) {
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
	if err := ri.majority(ls, readers, timer, late); err != nil {
		return 0, err
	}
	if term, ok := leading(ri.raft); !ok || term != ls.term {
		return 0, ErrNotLeader
	}
	return index, nil
}

// majority has a majority answer heartbeats sent from now on. Many readers wait for
// as few answers as will do: each costs more than the rest of a round. For few
// readers everybody is asked, and the quickest count.
func (ri *readIndex) majority(ls *leadership, readers int, timer *time.Timer, late <-chan time.Time) error {
	peers, need := ri.voters()
	round := ri.acks.begin(ls.term, peers, need)
	defer ri.acks.end()
	ri.beats.begin(ls.term, peers)
	if need > 0 {
		if readers < crowd {
			need = len(peers)
		}
		ri.beats.ask(need)
		timer.Reset(min(2*ri.usual+time.Millisecond, maxPatience))
	}
	begun := time.Now()
	for {
		select {
		case <-round.done:
			ri.usual += (time.Since(begun) - ri.usual) / 8
			return nil
		case <-timer.C:
			ri.beats.askRest()
		case <-ri.beats.failed:
			ri.beats.askRest()
		case <-ls.lost:
			return ErrNotLeader
		case <-late:
			return ErrNotLeader.Because(errNoMajority)
		case <-ri.stopping:
			return ErrNotLeader
		}
	}
}

// voters returns the other voters and how many of them make a majority together
// with this member.
func (ri *readIndex) voters() ([]raft.Server, int) {
	var peers []raft.Server
	all, self := 0, 0
	for _, s := range ri.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		all++
		if s.ID == ri.id {
			self = 1
		} else {
			peers = append(peers, s)
		}
	}
	return peers, all/2 + 1 - self
}

// stop ends the rounds. The transport has to be closed before end.
func (ri *readIndex) stop() {
	close(ri.stopping)
	<-ri.finished
}

// end waits for those who may still wait for an answer.
func (ri *readIndex) end() { ri.beats.end() }
