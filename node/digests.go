package node

import (
	"context"
	"errors"
	"net/url"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/verify"
)

// newVerifier compares this node's tenants with those of the cell's other nodes.
func (n *Node) newVerifier() *verify.Verifier {
	return verify.New(verify.Config{
		Self: n.cfg.full(n.cfg.Name), Number: cellfsm.MarkNumber, Files: n.space, Targets: n.space.UIDs, Ask: n.askMark,
		Visited: n.prune,
		Noticed: func(_ string, err error) { n.space.Noticed(err) },
		Every:   n.cfg.DigestEvery, Rate: n.cfg.DigestRate, Clock: n.cfg.Clock, Logger: n.cfg.Logger, Metrics: n.cfg.Metrics,
	})
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
