package directory

import (
	"context"
	"errors"
	"sync"
	"time"

	"celld/raftfsm"
)

// A lease of leaseFor counts from the moment before the read index was asked
// for. The leader waits leaseMargin longer than that, for clocks that do not run
// equally fast.
const (
	leaseFor    = time.Second
	leaseMargin = 50 * time.Millisecond
)

// Fresh returns nil while this gateway holds a lease: it has applied everything
// that was answered before the lease began. Otherwise ErrNotFresh.
//
// Ask it AFTER the read that it is to vouch for. Read first and then fresh means
// that no removal was answered before the read that the read has missed; the
// other way round, the process may have slept in between.
func (d *Directory) Fresh() error {
	if t0 := d.lease.Load(); t0 != nil && within(*t0, d.clock.Now()) {
		return nil
	}
	return ErrNotFresh
}

// within reports whether now is inside the lease that began at t0, by the
// monotonic clock and also by the wall clock: the monotonic one stands still
// while a machine is suspended, and the rest of the world does not. A wall clock
// that is set costs at most one renewal's wait.
func within(t0, now time.Time) bool {
	steady := now.Sub(t0)
	wall := now.Round(0).Sub(t0.Round(0))
	return steady >= 0 && steady < leaseFor && wall > -leaseFor && wall < leaseFor
}

// renewal is one request for a read index, shared by all who wait for it.
type renewal struct {
	done chan struct{}
	err  error
}

// Refresh asks for a read index now and returns when it has been applied here:
// everything answered before the call is visible. Concurrent calls share a
// request, but never one that began before the call.
func (d *Directory) Refresh(ctx context.Context) error {
	r := d.joinRenewal()
	if r == nil {
		return ErrNotFresh.Because(context.Canceled)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ErrNotFresh.Because(context.Cause(ctx))
	}
}

func (d *Directory) joinRenewal() *renewal {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing:
		return nil
	case d.running == nil:
		d.running = &renewal{done: make(chan struct{})}
		d.work.Go(d.renewals)
		return d.running
	case d.next == nil:
		d.next = &renewal{done: make(chan struct{})}
	}
	return d.next
}

// renewals runs the renewal that was asked for, and the next one while there is
// one.
func (d *Directory) renewals() {
	for {
		d.mu.Lock()
		r := d.running
		d.mu.Unlock()
		if err := d.renew(); err != nil {
			r.err = ErrNotFresh.Because(err)
		}
		close(r.done)
		d.mu.Lock()
		d.running, d.next = d.next, nil
		more := d.running != nil
		d.mu.Unlock()
		if !more {
			return
		}
	}
}

func (d *Directory) renew() error {
	ctx, cancel := context.WithTimeout(d.ctx, leaseFor)
	defer cancel()
	t0 := d.clock.Now()
	index, err := d.readIndex(ctx)
	if err == nil {
		err = d.group.WaitApplied(ctx, index)
	}
	d.metrics.renewed(err)
	if err != nil {
		return err
	}
	if have := d.lease.Load(); have == nil || have.Before(t0) {
		d.lease.Store(&t0) // renewals run one at a time
	}
	return nil
}

// readIndex gets a read index from the group's leader, wherever it is.
func (d *Directory) readIndex(ctx context.Context) (uint64, error) {
	if _, leads := d.observe(); leads {
		index, err := d.group.ReadIndex(ctx)
		if err == nil || !errors.Is(err, raftfsm.ErrNotLeader) {
			return index, err
		}
	}
	_, name, ok := d.group.Leader()
	if !ok || name == d.cfg.Name {
		return 0, raftfsm.ErrNotLeader
	}
	answer, err := d.call(ctx, name, pathReadIndex, nil)
	return answer.Index, err
}

func (d *Directory) renewLoop() {
	tick := time.NewTicker(d.cfg.Renew)
	defer tick.Stop()
	lost := false
	for {
		err := d.Refresh(d.ctx)
		if d.ctx.Err() != nil {
			return
		}
		if stale := d.Fresh() != nil; stale != lost {
			lost = stale
			if lost {
				d.log.Warn("the directory's lease is lost", "node", d.cfg.Name, "error", err)
			} else {
				d.log.Info("the directory's lease is held", "node", d.cfg.Name)
			}
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
	}
}

// leadership is what a leader keeps about the leases that it gave.
type leadership struct {
	mu     sync.Mutex
	term   uint64               // the latest in which this gateway was seen leading
	since  time.Time            // when that was noticed
	leases map[string]time.Time // gateway -> a time after which no lease given so far holds
}

// observe notes in which term this gateway leads, and whether it does. It is
// called before every grant and every proposal, so since is never earlier than
// the beginning of the term: a lease given by an earlier leader was asked for
// before that and is over leaseFor later.
func (d *Directory) observe() (term uint64, leads bool) {
	term = d.group.Term()
	if !d.group.IsLeader() || d.group.Term() != term {
		return term, false
	}
	d.leadership.mu.Lock()
	defer d.leadership.mu.Unlock()
	if d.leadership.term != term {
		d.leadership.term, d.leadership.since = term, d.clock.Now()
	}
	return term, true
}

// grant notes that a gateway is about to get a read index. It comes before the
// index is sampled: a settle that does not see the note runs after a commit that
// the sample will see.
func (d *Directory) grant(name string) {
	until := d.clock.Now().Add(leaseFor + leaseMargin)
	d.leadership.mu.Lock()
	defer d.leadership.mu.Unlock()
	if d.leadership.leases[name].Before(until) {
		d.leadership.leases[name] = until
	}
}

// lapses returns, for every gateway but this one that may hold a lease from
// before now or is a member, when the last such lease is over. steady says that
// this gateway has led in term all along; otherwise others may have given
// leases, and all that is known is that they are over leaseFor from now.
func (d *Directory) lapses(members []raftfsm.Member, term uint64, steady bool) map[string]time.Time {
	now := d.clock.Now()
	d.leadership.mu.Lock()
	defer d.leadership.mu.Unlock()
	least := now.Add(leaseFor + leaseMargin)
	if steady && d.leadership.term == term {
		least = d.leadership.since.Add(leaseFor + leaseMargin)
	}
	over := make(map[string]time.Time, len(members))
	for _, m := range members {
		over[m.Name] = least
	}
	for name, until := range d.leadership.leases {
		if _, member := over[name]; !member && until.Before(now) {
			delete(d.leadership.leases, name) // a gateway that was removed long ago
			continue
		}
		if over[name].Before(until) {
			over[name] = until
		}
	}
	delete(over, d.cfg.Name)
	return over
}

// settle returns when every gateway has applied index or no longer holds a lease
// from before its commit. Whoever asks for a lease now gets one that covers
// index.
func (d *Directory) settle(ctx context.Context, term, index uint64) error {
	started := d.clock.Now()
	defer func() { d.metrics.settled(d.clock.Now().Sub(started)) }()
	members, err := d.group.Servers()
	if err != nil {
		return err
	}
	now, leads := d.observe()
	over := d.lapses(members, term, leads && now == term)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	passed := make(chan error, len(over))
	for name, until := range over {
		go func() { passed <- d.pass(ctx, name, index, until) }()
	}
	for range over {
		err = errors.Join(err, <-passed)
	}
	return err
}

// retryPass is how long to wait before a gateway that could not be reached is
// asked again.
const retryPass = 50 * time.Millisecond

// pass waits for one gateway.
func (d *Directory) pass(ctx context.Context, name string, index uint64, until time.Time) error {
	left := until.Sub(d.clock.Now())
	if left <= 0 {
		return nil
	}
	lapsed, stop := d.clock.After(left)
	defer stop()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	applied := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for {
			if _, err := d.call(asking, name, pathApplied, &request{Index: index}); err == nil {
				close(applied)
				return
			}
			select {
			case <-asking.Done():
				return
			case <-time.After(retryPass):
			}
		}
	}()
	defer func() { cancel(); <-finished }()
	select {
	case <-applied:
		return nil
	case <-lapsed:
		d.metrics.lapsed.Inc()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
