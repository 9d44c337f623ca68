package dirfsm_test

import (
	"testing"

	"celld/raftfsm/dirfsm"
)

func TestNodesOfACell(t *testing.T) {
	d := open(t)
	d.cell("C2", "eu", 10)
	put := func(name, address string) dirfsm.PutNode {
		return dirfsm.PutNode{Cell: "C2", Node: dirfsm.CellNode{Name: name, Address: address}, Reason: "why", Members: 2}
	}
	const nodes, audited = "SELECT count(*) FROM cell_node WHERE cell = 'C2'", "SELECT count(*) FROM audit WHERE action = ? AND subject = ? AND detail = ?"
	d.refuse("forbidden", "U1", dirfsm.NumPutNode, put("n2", "b:1"))
	d.refuse("not-found", op, dirfsm.NumPutNode, dirfsm.PutNode{Cell: "C9", Node: dirfsm.CellNode{Name: "n2", Address: "b:1"}, Members: 2})
	mark := d.touched.Load()
	d.do(op, dirfsm.NumPutNode, put("n2", "b:1"))
	if d.touched.Load() == mark {
		t.Error("gateways go on without the new node")
	}
	d.do(op, dirfsm.NumPutNode, put("n2", "b:2")) // it moves
	d.refuse("too-many-nodes", op, dirfsm.NumPutNode, put("n3", "c:1"))
	if d.number(nodes) != 2 || d.number("SELECT count(*) FROM cell_node WHERE node = 'n2' AND address = 'b:2'") != 1 {
		t.Error("the nodes are not as they were put")
	}
	if d.number(audited, "add-node", "C2/n2", "b:2: why") != 1 {
		t.Error("no audit of the node")
	}

	remove := func(name string) dirfsm.RemoveNode { return dirfsm.RemoveNode{Cell: "C2", Node: name, Reason: "old"} }
	d.refuse("forbidden", gw, dirfsm.NumRemoveNode, remove("n1"))
	for range 2 {
		d.do(op, dirfsm.NumRemoveNode, remove("n1"))
	}
	d.refuse("last-node", op, dirfsm.NumRemoveNode, remove("n2"))
	if d.number(nodes) != 1 || d.number(audited, "remove-node", "C2/n1", "old") != 2 {
		t.Error("the node was not removed, or without audit")
	}
}
