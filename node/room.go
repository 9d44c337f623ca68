package node

import (
	"context"

	"celld/raftfsm"
)

// hasRoom asks another node of the cell whether its disk has room and it may lead.
// It is asked by a leader that wants to hand over.
func (n *Node) hasRoom(ctx context.Context, m raftfsm.Member) (bool, error) {
	name := short(m.Name)
	s, err := n.ask(ctx, peer{name: name, address: n.addressOf(name, m.Address)})
	return s.HasRoom && s.Ready && s.Absent == 0, err
}
