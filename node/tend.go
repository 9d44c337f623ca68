package node

import (
	"context"
	"fmt"
	"time"

	"celld/node/api"
	"celld/raftfsm"
	"celld/store/tenant"
)

// tendEvery is how often a leader looks at members without a vote, and a node
// without a leader asks whether it still is a member.
const tendEvery = 500 * time.Millisecond

// Removed is why a node ended that its cell has removed: for good.
type Removed struct {
	Cell tenant.CellName
	Node string
	ID   string
	Dir  string
}

func (r *Removed) Error() string {
	return fmt.Sprintf("this node, %s/%s (server id %s), was removed from its cell and has ended for good. "+
		"Its data in %s is no longer needed. To have the node in the cell again, empty that folder, start it with join, and add it with celld admin cell add-node",
		r.Cell, r.Node, r.ID, r.Dir)
}

// tend sees to the cell's membership until ctx ends: on the leader it gives members
// their votes, elsewhere it notices that this node is none any more.
func (n *Node) tend(ctx context.Context) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	var before uint64 // what the leader had applied at the last tick
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if n.group.IsLeader() {
			now := n.group.Applied()
			if before > 0 {
				n.promote(ctx, before)
			}
			before = now
			continue
		}
		before = 0
		if _, _, led := n.group.Leader(); led {
			continue
		}
		if n.isRemoved(ctx) {
			return &Removed{Cell: n.cfg.Cell, Node: n.cfg.Name, ID: n.group.ID(), Dir: n.cfg.Dir}
		}
	}
}

// promote gives a vote to each member that has caught up: it has applied what the
// leader had applied a tick ago, and lacks no tenant.
func (n *Node) promote(ctx context.Context, reached uint64) {
	at, err := n.group.Membership()
	if err != nil || !at.Committed {
		return // the next tick asks again
	}
	for _, m := range at.Members {
		if m.Voter {
			continue
		}
		name := short(m.Name)
		said, err := n.ask(ctx, peer{name, n.addressOf(name, m.Address)})
		if err != nil {
			n.cfg.Logger.Debug("a member without a vote does not answer", "member", name, "error", err)
			continue
		}
		if !caughtUp(said, m, reached) || n.space.Absent() > 0 {
			continue
		}
		if err := n.group.Promote(ctx, at.Index, m); err != nil {
			n.cfg.Logger.Info("a member has caught up, but got no vote yet", "member", name, "error", err)
			return
		}
		n.cfg.Logger.Info("a member has caught up and got its vote", "member", name, "server_id", m.ID, "applied", said.Applied)
		return // the next change follows another configuration
	}
}

func caughtUp(said api.Status, m raftfsm.Member, reached uint64) bool {
	return said.ServerID == m.ID && said.Ready && said.Absent == 0 && said.Applied >= reached
}

// isRemoved reports whether the cell has removed this node: it has been a member,
// and the leader, under a committed configuration that is not older than the one
// known here, has it no more. Nobody else's word counts, and silence is no answer.
func (n *Node) isRemoved(ctx context.Context) bool {
	if n.group.LastIndex() == 0 {
		return false // waits to be added
	}
	at, err := n.group.Membership()
	if err != nil {
		return false
	}
	key, err := n.space.Key()
	if err != nil {
		return false
	}
	for _, p := range n.peers(at.Members) {
		said, err := n.ask(ctx, p)
		if err != nil || !said.IsLeader || !said.MembersCommitted || said.MembersIndex < at.Index || key != "" && said.CellKey != string(key) {
			continue
		}
		for _, m := range said.Members {
			if m.ID == n.group.ID() {
				return false
			}
		}
		return true
	}
	return false
}
