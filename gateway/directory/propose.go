package directory

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// maxPropose bounds a change with all its retries.
const maxPropose = 8 * time.Second

// maxForward bounds one attempt through another gateway. A leader that has
// vanished without a word answers neither yes nor no, and its successor is there
// sooner; one that lives answers within a lease's time.
const maxForward = 2500 * time.Millisecond

// Waits between the attempts of one change.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 250 * time.Millisecond
)

// propose has one command applied and decodes its result. Where the caller's
// client gave no key it makes one, so that its own retries have one effect.
func propose[R any](ctx context.Context, d *Directory, by Actor, key *raftfsm.Key, uid tenant.UID, n raftfsm.Number, body any) (R, bool, error) {
	var result R
	if by.name == "" {
		return result, false, errors.New("directory: a change without an actor")
	}
	c, err := raftfsm.NewCommand(n, "", body)
	if err != nil {
		return result, false, err
	}
	c.Actor = by.name
	if c.Key, err = d.keyFor(by, key, uid); err != nil {
		return result, false, err
	}
	out, err := d.submit(ctx, c)
	if err != nil {
		return result, false, err
	}
	return result, out.Replayed, out.Into(&result)
}

// keyFor completes a client's key, or makes one.
func (d *Directory) keyFor(by Actor, key *raftfsm.Key, uid tenant.UID) (*raftfsm.Key, error) {
	k := raftfsm.Key{Actor: by.name, Operation: "once"}
	if key != nil {
		k.Operation, k.Key, k.Hash = key.Operation, key.Key, key.Hash
		if uid != "" {
			k.Operation += " " + string(uid)
		}
		return &k, nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(d.cfg.Random, raw[:]); err != nil {
		return nil, err
	}
	k.Key = hex.EncodeToString(raw[:])
	return &k, nil
}

// submit has a command applied wherever the leader is, and again until the
// outcome is certain: the command has a key or does no harm twice. It returns
// when the outcome is applied here too.
func (d *Directory) submit(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, maxPropose)
	defer cancel()
	unknown := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		out, err := d.attempt(ctx, c)
		if err == nil {
			err = d.group.WaitApplied(ctx, out.Index)
			if err != nil {
				return raftfsm.Outcome{}, raftfsm.ErrUnknown.Because(err)
			}
			d.metrics.changed("done")
			return out, nil
		}
		unknown = unknown || errors.Is(err, raftfsm.ErrUnknown)
		if !errors.Is(err, raftfsm.ErrUnknown) && !errors.Is(err, raftfsm.ErrNotLeader) && !errors.Is(err, raftfsm.ErrBusy) {
			d.metrics.changed(fault.Of(err).String())
			return raftfsm.Outcome{}, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if unknown {
				err = raftfsm.ErrUnknown.Because(err)
			}
			d.metrics.changed("gave-up")
			return raftfsm.Outcome{}, err
		}
	}
}

func (d *Directory) attempt(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error) {
	if d.group.IsLeader() {
		return d.lead(ctx, c)
	}
	_, name, ok := d.group.Leader()
	if !ok || name == d.cfg.Name {
		return raftfsm.Outcome{}, raftfsm.ErrNotLeader
	}
	ctx, cancel := context.WithTimeout(ctx, maxForward)
	defer cancel()
	answer, err := d.call(ctx, name, pathPropose, &request{Command: &c})
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	if answer.Outcome == nil {
		return raftfsm.Outcome{}, raftfsm.ErrUnknown
	}
	return *answer.Outcome, nil
}

// lead proposes a command as the leader and answers when every gateway is past
// it, so that what has been answered holds at each of them. A refusal waits too:
// it may tell of an earlier change whose own answer never came, such as a member
// who is gone already.
func (d *Directory) lead(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error) {
	term, leads := d.observe()
	if !leads {
		return raftfsm.Outcome{}, raftfsm.ErrNotLeader
	}
	out, err := d.group.Propose(ctx, c)
	index := out.Index
	if err != nil {
		if kind := fault.Of(err); kind == fault.Unavailable || kind == fault.Internal || kind == fault.TooLarge {
			return raftfsm.Outcome{}, err
		}
		index = d.group.Applied()
	}
	if failed := d.settle(ctx, term, index); failed != nil {
		return raftfsm.Outcome{}, raftfsm.ErrUnknown.Because(failed)
	}
	return out, err
}

// tidyLoop keeps directory.db small: it checkpoints, and prunes where this
// gateway leads.
func (d *Directory) tidyLoop() {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
		if err := d.space.Checkpoint(); err != nil {
			d.log.Warn("the directory's file was not checkpointed", "node", d.cfg.Name, "error", err)
		}
		if n%pruneTicks != 0 || !d.group.IsLeader() {
			continue
		}
		if err := d.prune(d.ctx); err != nil && d.ctx.Err() == nil {
			d.log.Warn("the directory was not pruned", "node", d.cfg.Name, "error", err)
		}
	}
}

const (
	tidyEvery  = 10 * time.Second
	pruneTicks = 60
	pruneLimit = 500 // rows of each kind in one command

	keepInvites = 7 * 24 * time.Hour // after they have expired
	keepKeys    = 48 * time.Hour
	keepAudit   = 400 * 24 * time.Hour
	keepMoves   = keepAudit // from when they are over and nothing is left of them
)

// prune deletes what is past its time, in commands of bounded size.
func (d *Directory) prune(ctx context.Context) error {
	now := d.clock.Now()
	if err := d.pruneBy(ctx, dirfsm.NumPrune, dirfsm.Prune{Sessions: now.UnixMicro(), Invites: now.Add(-keepInvites).UnixMicro(),
		Keys: now.Add(-keepKeys).UnixMicro(), Audit: now.Add(-keepAudit).UnixMicro(), Limit: pruneLimit}); err != nil {
		return err
	}
	return d.pruneBy(ctx, dirfsm.NumPruneMoves, dirfsm.PruneMoves{Before: now.Add(-keepMoves).UnixMicro(), Limit: pruneLimit})
}

// pruneBy repeats one such command until it finds no more.
func (d *Directory) pruneBy(ctx context.Context, n raftfsm.Number, body any) error {
	for {
		c, err := raftfsm.NewCommand(n, "", body)
		if err != nil {
			return err
		}
		c.Actor = d.self().name
		out, err := d.submit(ctx, c)
		if err != nil {
			return err
		}
		var done dirfsm.Pruned
		if err := out.Into(&done); err != nil {
			return err
		}
		if done.Deleted > 0 {
			d.log.Info("pruned the directory", "node", d.cfg.Name, "rows", done.Deleted)
		}
		if !done.More {
			return nil
		}
	}
}

func (d *Directory) self() Actor { return Actor{dirfsm.GatewayPrefix + d.cfg.Name} }
