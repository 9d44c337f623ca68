package directory

import (
	"context"
	"net"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store/tenant"
)

// PutNode notes a node of a cell and where it listens; by operators, with a reason
// for the audit.
func (d *Directory) PutNode(ctx context.Context, by Actor, key *raftfsm.Key, cell tenant.CellName, node, address, reason string) (bool, error) {
	if !tenant.ValidID(node) {
		return false, invalid("node", "must be a letter and up to 31 letters, digits or hyphens")
	}
	if _, _, err := net.SplitHostPort(address); err != nil || len(address) > maxAddress {
		return false, invalid("address", "must be of the form host:port")
	}
	if err := checkReason(address, reason); err != nil {
		return false, err
	}
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, "", dirfsm.NumPutNode,
		dirfsm.PutNode{Cell: cell, Node: dirfsm.CellNode{Name: node, Address: address}, Reason: reason, Members: maxNodes})
	return replayed, err
}

// RemoveNode forgets a node of a cell; by operators, with a reason for the audit.
// The last one can't be forgotten: 409 last-node.
func (d *Directory) RemoveNode(ctx context.Context, by Actor, key *raftfsm.Key, cell tenant.CellName, node, reason string) (bool, error) {
	if err := checkReason("", reason); err != nil {
		return false, err
	}
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, "", dirfsm.NumRemoveNode, dirfsm.RemoveNode{Cell: cell, Node: node, Reason: reason})
	return replayed, err
}

// checkReason bounds what the audit keeps of an act: reason, and what stands before
// it.
func checkReason(before, reason string) error {
	return checkText("reason", reason, maxAuditText-len(before)-2)
}
