package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store/tenant"
)

// Retention is how long what a tenant remembers of past commands is kept.
type Retention struct {
	Keys  time.Duration // idempotency keys; a day at least, 0 for two
	Audit time.Duration // audit and outbox rows; as long as keys at least, 0 for 400 days
}

const (
	leastKeys    = 24 * time.Hour
	defaultKeys  = 48 * time.Hour
	defaultAudit = 400 * 24 * time.Hour
)

func (r *Retention) complete() error {
	if r.Keys == 0 {
		r.Keys = defaultKeys
	}
	if r.Audit == 0 {
		r.Audit = max(defaultAudit, r.Keys)
	}
	if r.Keys < leastKeys || r.Audit < r.Keys {
		return fmt.Errorf("idempotency keys must be kept for %s at least, and the audit for as long as they are", leastKeys)
	}
	return nil
}

const (
	// pruneLimit is how many rows of each kind one command deletes, pruneMost how
	// many commands a tenant gets in a row; what is left waits for the next visit.
	pruneLimit = 500
	pruneMost  = 20_000
	prunePause = 10 * time.Millisecond
	pruneTime  = 5 * time.Second
)

// prune has what is past its time deleted from a tenant's file, in commands of
// bounded size. The leader calls it for one tenant after the other, when the digest
// sweep has just had the file open: nobody opens thousands of files to see whether
// there is something in them.
func (n *Node) prune(ctx context.Context, target string) {
	if target == "" {
		n.pruneMoves(ctx)
		return
	}
	row, err := n.space.Tenant(tenant.UID(target))
	for i := 0; err == nil && i < pruneMost; i++ {
		now := n.cfg.Clock()
		body := cellfsm.Prune{Keys: now.Add(-n.cfg.Retention.Keys).UnixMicro(), Audit: now.Add(-n.cfg.Retention.Audit).UnixMicro(), Limit: pruneLimit}
		var more bool
		if more, err = n.space.Prunable(row.UID, body); err != nil || !more {
			break
		}
		if err = n.proposePrune(ctx, row, body); err != nil {
			break
		}
		select {
		case <-time.After(prunePause):
		case <-ctx.Done():
			return
		}
	}
	if err != nil && !errors.Is(err, cellfsm.ErrNothingToPrune) && ctx.Err() == nil {
		n.cfg.Logger.Info("a tenant was not pruned to the end; the next visit goes on", "tenant", string(row.ID), "error", err)
	}
}

func (n *Node) proposePrune(ctx context.Context, row cellfsm.Tenant, body cellfsm.Prune) error {
	cmd, err := raftfsm.NewCommand(cellfsm.PruneNumber, string(row.UID), body)
	if err != nil {
		return err
	}
	cmd.Epoch = uint64(row.Epoch)
	var done cellfsm.Pruned
	if err := n.proposeOwn(ctx, cmd, &done); err != nil {
		return err
	}
	n.pruned.Add(float64(done.Keys + done.Audit))
	return nil
}

// proposeOwn proposes what the node itself wants.
func (n *Node) proposeOwn(ctx context.Context, cmd raftfsm.Command, done any) error {
	cmd.Actor = "node:" + n.cfg.Name
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	out, err := n.group.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	return out.Into(done)
}

// keepMoves is for how long after it was planned a cell remembers that a move is
// over. A move that begins here later than that is refused.
const keepMoves = 30 * 24 * time.Hour

// pruneMoves has the cell forget old moves that are over, at most pruneLimit a visit:
// the cell's own file is visited as often as each tenant.
func (n *Node) pruneMoves(ctx context.Context) {
	body := cellfsm.MovePrune{Before: n.cfg.Clock().Add(-keepMoves).UnixMicro(), Limit: pruneLimit}
	more, err := n.space.MovesPrunable(body)
	if err == nil && more {
		var cmd raftfsm.Command
		if cmd, err = raftfsm.NewCommand(cellfsm.MovePruneNumber, "", body); err == nil {
			err = n.proposeOwn(ctx, cmd, new(cellfsm.MovesPruned))
		}
	}
	if err != nil && ctx.Err() == nil {
		n.cfg.Logger.Info("old moves were not pruned; the next visit goes on", "error", err)
	}
}
