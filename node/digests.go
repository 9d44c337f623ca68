package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/verify"
	"celld/store/tenant"
)

// newVerifier compares this node's tenants with those of the cell's other nodes.
func (n *Node) newVerifier() *verify.Verifier {
	return verify.New(verify.Config{
		Self: n.cfg.full(n.cfg.Name), Number: cellfsm.MarkNumber, Files: n.space, Targets: n.space.UIDs, Ask: n.askMark,
		Visited: n.prune, Condemn: n.condemn,
		Noticed: func(target string, err error) { n.space.Noticed(tenant.UID(target), err) },
		Every:   n.cfg.DigestEvery, Rate: n.cfg.DigestRate, Clock: n.cfg.Clock, Logger: n.cfg.Logger, Metrics: n.cfg.Metrics,
	})
}

// condemn gives up this node's file of a tenant, which is then fetched anew. The
// cell's own file cannot be: the node stops.
func (n *Node) condemn(target, reason string) error {
	if target == "" {
		err := fmt.Errorf("this node's cell.db differs from the others': %s; remove this node from the cell and add a new one", reason)
		n.fail(err)
		return err
	}
	return n.space.MarkAbsent(tenant.UID(target), reason)
}

// askMark asks another node what it has found at a mark.
func (n *Node) askMark(ctx context.Context, member raftfsm.Member, mark string) (verify.Result, error) {
	var r verify.Result
	err := n.looker.get(ctx, member, "/internal/marks/"+url.PathEscape(mark), &r)
	if err == nil && r.Mark != mark {
		err = errors.New("the node answered for another mark")
	}
	return r, err
}
