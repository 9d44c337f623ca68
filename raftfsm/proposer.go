package raftfsm

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"celld/store/fault"
	"celld/store/room"
)

// proposer gathers the commands of concurrent callers into log entries. An entry
// is proposed as soon as one of the slots for entries on their way is free, with
// whatever waits by then: nothing waits while the group is idle, and the busier
// it is the fuller its entries.
//
// Two goroutines: gather builds and proposes entries, deliver waits for them in
// their order and answers the callers.
type proposer struct {
	raft    *raft.Raft
	limits  Limits
	metrics *metrics

	queue  chan *proposal
	queued atomic.Int64  // bytes
	flying *atomic.Int64 // entries proposed and not answered; apply asks, before there is a proposer

	slots    chan struct{}
	entries  chan proposedEntry
	stopping chan struct{} // closed by stop
	finished chan struct{} // closed when every command taken has its answer
}

type proposal struct {
	data  []byte
	own   bool // for the group's own file
	state atomic.Int32
	done  chan result // holds one
}

// States of a proposal: its caller may withdraw it while it is queued.
const (
	queued int32 = iota
	taken
	withdrawn
)

type proposedEntry struct {
	future    raft.ApplyFuture
	proposals []*proposal
	since     time.Time
}

func newProposer(r *raft.Raft, limits Limits, flying *atomic.Int64, m *metrics) *proposer {
	p := &proposer{
		raft: r, limits: limits, metrics: m, flying: flying,
		queue:    make(chan *proposal, limits.QueueCommands),
		slots:    make(chan struct{}, limits.Entries),
		entries:  make(chan proposedEntry, limits.Entries),
		stopping: make(chan struct{}),
		finished: make(chan struct{}),
	}
	go p.gather()
	go p.deliver()
	return p
}

// propose queues one encoded command and waits for what becomes of it.
func (p *proposer) propose(ctx context.Context, data []byte, own bool) (Outcome, error) {
	if size := len(data) + entryOverhead; size > p.limits.BatchBytes {
		return Outcome{}, tooLarge(size, p.limits.BatchBytes)
	}
	if ctx.Err() != nil {
		return Outcome{}, ErrBusy.Because(context.Cause(ctx))
	}
	size := int64(len(data))
	if p.queued.Add(size) > int64(p.limits.QueueBytes) {
		p.queued.Add(-size)
		return Outcome{}, ErrBusy
	}
	pr := &proposal{data: data, own: own, done: make(chan result, 1)}
	select {
	case <-p.stopping:
		p.queued.Add(-size)
		return Outcome{}, ErrNotLeader
	default:
	}
	select {
	case p.queue <- pr:
	default:
		p.queued.Add(-size)
		return Outcome{}, ErrBusy
	}
	select {
	case r := <-pr.done:
		return r.outcome, r.err
	case <-ctx.Done():
		return pr.abandon(ErrBusy, context.Cause(ctx))
	case <-p.finished:
		return pr.abandon(ErrNotLeader, nil)
	}
}

// abandon ends the wait for an answer: before the command was taken for an entry
// the error is certain, afterwards nothing is.
func (pr *proposal) abandon(certain *fault.Error, cause error) (Outcome, error) {
	if pr.state.CompareAndSwap(queued, withdrawn) {
		return Outcome{}, certain.Because(cause)
	}
	select {
	case r := <-pr.done:
		return r.outcome, r.err
	default:
		return Outcome{}, ErrUnknown.Because(cause)
	}
}

func (p *proposer) gather() {
	defer close(p.entries)
	var next *proposal // taken from the queue, and not fit for the entry before
	for {
		if next == nil {
			select {
			case next = <-p.queue:
			case <-p.stopping:
				return
			}
		}
		select {
		case p.slots <- struct{}{}:
		case <-p.stopping:
			return
		}
		select {
		case <-p.stopping: // before a slot that came free at the same time
			return
		default:
		}
		// Let callers that can run put their commands in first: when an entry has
		// been answered all of its callers come back at once.
		runtime.Gosched()
		var batch []*proposal
		batch, next = p.collect(next)
		if len(batch) == 0 {
			<-p.slots
			continue
		}
		data := make([][]byte, len(batch))
		for i, pr := range batch {
			data[i] = pr.data
		}
		p.metrics.entryCommands.Observe(float64(len(batch)))
		p.flying.Add(1)
		e := proposedEntry{proposals: batch, since: time.Now()}
		e.future = p.raft.Apply(assembleEntry(data), 0)
		p.entries <- e
	}
}

// collect takes commands of one kind from the queue, up to the bounds of an
// entry. The first that does not fit is returned for the next entry.
func (p *proposer) collect(first *proposal) (batch []*proposal, rest *proposal) {
	size := entryOverhead
	for pr := first; ; {
		if len(batch) > 0 && (pr.own != batch[0].own || size+len(pr.data) > p.limits.BatchBytes) {
			return batch, pr
		}
		p.queued.Add(-int64(len(pr.data)))
		if pr.state.CompareAndSwap(queued, taken) {
			size += len(pr.data)
			batch = append(batch, pr)
		}
		if len(batch) == p.limits.BatchCommands {
			return batch, nil
		}
		select {
		case pr = <-p.queue:
		default:
			return batch, nil
		}
	}
}

func (p *proposer) deliver() {
	defer close(p.finished)
	for e := range p.entries {
		err := e.future.Error()
		p.metrics.commitSeconds.Observe(time.Since(e.since).Seconds())
		var results []result
		if err == nil {
			switch answer := e.future.Response().(type) {
			case []result:
				results = answer
			case error:
				err = ErrUnknown.Because(answer)
			}
		} else {
			err = proposeError(err)
		}
		p.flying.Add(-1)
		<-p.slots
		for i, pr := range e.proposals {
			r := result{err: err}
			if err == nil {
				r = results[i]
			}
			pr.done <- r
		}
	}
}

// proposeError tells the certain failures of raft.Apply from the others. The
// library answers ErrNotLeader and ErrLeadershipTransferInProgress to entries
// that it never dispatched, and only to them. Everything else may have reached
// the log, a failed write of it and a shutdown included; not one that was refused
// before it began.
func proposeError(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return ErrNotLeader.Because(err)
	}
	if errors.Is(err, room.ErrFull) { // said by logStore before anything was written or sent
		return err
	}
	return ErrUnknown.Because(err)
}

// stop ends proposing: what is queued gets ErrNotLeader. It returns when every
// command on its way is answered, or when giveUp is closed.
func (p *proposer) stop(giveUp <-chan struct{}) {
	close(p.stopping)
	select {
	case <-p.finished:
	case <-giveUp:
	}
}
