package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/room"
)

// verdict is what to do about a refusal.
type verdict struct {
	again   bool // another attempt makes sense
	refresh bool // ask the directory's leader first: what was known is out of date
	few     bool // not more than fewAttempts times
}

// fewAttempts is for refusals that more attempts would make worse.
const fewAttempts = 3

// judge decides by slug and kind alone, so that it can be shown as one table.
func judge(e *fault.Error) verdict {
	switch e.Slug {
	case raftfsm.ErrNotLeader.Slug, raftfsm.ErrUnknown.Slug, raftfsm.ErrBehind.Slug, raftfsm.ErrAbsent.Slug, errUnreachable.Slug, "timeout":
		return verdict{again: true}
	case raftfsm.ErrBusy.Slug, room.ErrFull.Slug: // of a full node, while it hands over
		return verdict{again: true, few: true}
	case identity.ErrBadContext.Slug, identity.ErrNoContext.Slug:
		// The cell has another key than the directory said, or a clock is wrong.
		return verdict{again: true, refresh: true, few: true}
	case "stale-policy", "placement-changed":
		return verdict{again: true, refresh: true}
	}
	switch e.Kind {
	case fault.Moved, fault.Fenced:
		return verdict{again: true, refresh: true}
	}
	return verdict{}
}

// task is one request to a tenant's cell, over all its attempts.
type task struct {
	inner *hop.Request
	any   bool // any replica may answer
	// target finds the cell and the authority; it runs for each attempt, so that
	// what changed meanwhile counts.
	target func(again bool) (*cell, identity.Context, error)
	// For the log.
	attempts int
	node     string
}

// ask sends t until it is answered, it makes no sense any more, or time is up.
// The answer goes to w; an error means that w is untouched, or that the answer
// broke off where w has a part of it. A write is asked again under one and the same
// idempotency key.
func (g *Gateway) ask(ctx context.Context, t *task, w http.ResponseWriter) error {
	begun, cancel := time.Now(), func() {}
	defer func() { cancel() }()
	bounded := false
	bound := func() {
		if !bounded {
			bounded = true
			ctx, cancel = context.WithDeadline(ctx, begun.Add(g.cfg.Limits.Total))
		}
	}
	var failed *node
	var last *fault.Error // what the client is told when time is up
	unsure, redirected := false, false
	for {
		c, err := g.vouch(t)
		if err != nil && unsure {
			return raftfsm.ErrUnknown.Because(err) // who may not ask again does not learn the outcome
		}
		if err != nil {
			return settle(err, false)
		}
		n := c.pick(t.any, failed)
		// If the first node answers at once, as nearly always, the request needs no
		// timer here.
		t.inner.Deadline = begun.Add(g.cfg.Limits.Total)
		t.attempts++
		t.node = n.full
		no := g.attempt(ctx, n, t, w)
		if no == nil {
			if !t.any {
				c.led(n)
			}
			return nil
		}
		if no.half {
			return no.err
		}
		unsure = unsure || no.unsure && t.inner.Method != http.MethodGet
		failed = nil
		todo := judge(no.err)
		if no.err.Slug == raftfsm.ErrNotLeader.Slug || no.err.Slug == errUnreachable.Slug || no.err.Slug == room.ErrFull.Slug {
			c.learn(n, no.leader)
			failed = n
		}
		if no.err.Slug == raftfsm.ErrAbsent.Slug {
			failed = n // it goes on leading for as long as it takes to hand that over
		}
		if no.err.Slug == raftfsm.ErrBehind.Slug {
			// Whom the leader is behind asks for an index that is not there.
			todo.again, t.any = t.any, false
		}
		// A pointer to the leader and the end of the time refuse nothing themselves.
		if last == nil || !todo.again || no.leader == "" && ctx.Err() == nil {
			last = no.err
		}
		if !todo.again || todo.few && t.attempts >= fewAttempts || ctx.Err() != nil {
			return settle(last, unsure)
		}
		g.metrics.retries.WithLabelValues(no.err.Slug).Inc()
		bound()
		// The first pointer to another leader is followed at once.
		if lead := c.leader.Load(); redirected || lead == nil || lead == n {
			if !pause(ctx, t.attempts) {
				return settle(last, unsure)
			}
		}
		redirected = true
		if todo.refresh {
			if err := g.dir.Refresh(ctx); err != nil {
				if ctx.Err() != nil {
					err = last
				}
				return settle(err, unsure)
			}
		}
	}
}

// vouch finds the cell to ask, and signs for the request there.
func (g *Gateway) vouch(t *task) (*cell, error) {
	c, who, err := t.target(t.attempts > 0)
	if err != nil {
		return nil, err
	}
	token, err := g.signer.Sign(who)
	if err != nil {
		return nil, err
	}
	t.inner.Header[identity.Header] = []string{token}
	return c, nil
}

// attempt bounds one try of a node elsewhere. One in this process does not
// vanish; it minds the request's own end, and bounds what it does itself.
func (g *Gateway) attempt(ctx context.Context, n *node, t *task, w http.ResponseWriter) *refusal {
	if n.here {
		t.inner.Deadline = time.Time{}
	} else if end := time.Now().Add(g.cfg.Limits.Attempt); end.Before(t.inner.Deadline) {
		t.inner.Deadline = end
	}
	return n.try(ctx, t.inner, w)
}

// settle is what a client is told after the last attempt. Once an attempt may
// have taken effect, only an answer that the log gave afterwards makes it certain:
// not that a later attempt came to nothing.
func settle(err error, unsure bool) error {
	e := fault.As(err)
	switch {
	case unsure && (problem.Status(e.Kind) == http.StatusServiceUnavailable || errors.Is(e, identity.ErrBadContext)):
		return raftfsm.ErrUnknown.Because(err)
	case e.Slug == raftfsm.ErrNotLeader.Slug:
		return errNoLeader.Because(err)
	case e.Kind == fault.Unauthenticated:
		// Not the client's credentials: the cell does not take this gateway's word.
		return errUnreachable.After(time.Second).Because(err)
	}
	return err
}

// errNoLeader is a cell without a leader: it is electing one, or has no quorum.
var errNoLeader = (&fault.Error{Kind: fault.Unavailable, Slug: "no-leader", Detail: "the tenant's cell has no leader now; retry"}).After(time.Second)

// pause waits a little, longer each time, and reports whether ctx still lives.
func pause(ctx context.Context, attempts int) bool {
	most := 10 * time.Millisecond << min(attempts, 5)
	timer := time.NewTimer(most/2 + rand.N(most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
