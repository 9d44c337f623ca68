package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	// catchUpTime is how long an answer to add-node waits for the node's vote. Who
	// asks again goes on waiting.
	catchUpTime = 20 * time.Second
	// catchUpPoll is how often it looks.
	catchUpPoll = 250 * time.Millisecond

	maxReason  = 500
	maxAddress = 260
)

// States of a node in the answers of add-node and remove-node.
const (
	nodeCatchingUp = "catching-up" // has the log and no vote yet; the cell goes on by itself
	nodeVoter      = "voter"
	nodeRemoved    = "removed"
)

// nodeChangeJSON is how far adding or removing a node has come.
type nodeChangeJSON struct {
	Cell     tenant.CellName `json:"cell"`
	Node     string          `json:"node"`
	Address  string          `json:"address,omitempty"`
	ServerID string          `json:"serverId,omitempty"`
	State    string          `json:"state"`
	Applied  uint64          `json:"appliedIndex"` // of the node
	Leader   uint64          `json:"leaderIndex"`  // the leader's
	Absent   int             `json:"absent"`       // tenants that the node has to fetch
	Voters   int             `json:"voters"`       // nodes that count for the cell's majority
	Problem  string          `json:"problem,omitempty"`
}

// operatorAddNode adds a node to a cell. Each step is made only where it is missing,
// so that the call may be repeated, whoever broke off wherever.
func (g *Gateway) operatorAddNode(o *operation) error {
	var in struct {
		Node    string `json:"node"`
		Address string `json:"address"`
		Reason  string `json:"reason"`
		Wait    bool   `json:"wait"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if !tenant.ValidID(in.Node) {
		return fault.New(fault.Invalid, "invalid-field", "node must be a letter and up to 31 letters, digits or hyphens").With("field", "node")
	}
	if err := firstOf(text("address", in.Address, maxAddress), body.Text("reason", in.Reason, maxReason)); err != nil {
		return err
	}
	from, err := g.cellNamed(o.r.Context(), o.vars["cell"])
	if err != nil {
		return err
	}
	key, err := o.key(from.Name, in.Node, in.Address, in.Reason)
	if err != nil {
		return err
	}
	said, err := g.statusAt(o.r.Context(), from.Name, in.Node, in.Address)
	if err != nil {
		return err
	}
	joins := newMember{Node: in.Node, ServerID: said.ServerID, Address: in.Address, Check: true}
	if _, err := g.tellLeader(o.r.Context(), from.Name, "/internal/members", joins); err != nil {
		return err
	}
	// The directory first: a node that leads must be one that gateways know.
	if from.Nodes[in.Node] != in.Address {
		if _, err := g.dir.PutNode(o.r.Context(), o.by, key, from.Name, in.Node, in.Address, in.Reason); err != nil {
			return err
		}
	} else if err := g.record(o, directory.AuditEntry{Subject: string(from.Name) + "/" + in.Node, Detail: in.Reason}); err != nil {
		return err
	}
	joins.Check = false
	lead, err := g.tellLeader(o.r.Context(), from.Name, "/internal/members", joins)
	if err != nil {
		return err
	}
	out := nodeChangeJSON{Cell: from.Name, Node: in.Node, Address: in.Address, ServerID: said.ServerID}
	g.describe(o.r.Context(), &out, lead)
	if in.Wait {
		g.awaitVote(o.r.Context(), &out)
	}
	status := http.StatusOK
	if out.State != nodeVoter {
		status = http.StatusAccepted
	}
	return o.answer(status, out, false)
}

// newMember is what a cell's leader is told about a node.
type newMember struct {
	Node     string `json:"node"`
	ServerID string `json:"serverId"`
	Address  string `json:"address"`
	Check    bool   `json:"check"`
}

// statusAt asks the node that listens at an address, whether or not the directory
// knows it.
func (g *Gateway) statusAt(ctx context.Context, cell tenant.CellName, name, address string) (nodeStatus, error) {
	n := g.cells.node(string(cell), name, address)
	defer n.Close()
	var s nodeStatus
	if err := g.askNode(ctx, n, statusPath, probeTimeout, &s); err != nil {
		return s, fault.New(fault.Conflict, "node-unreachable",
			"this gateway can't reach %s at %s; check address and certificate, and that the node runs with join", n.full, address).Because(err)
	}
	if s.Cell != string(cell) || s.Node != name {
		return s, fault.New(fault.Conflict, "another-node", "the node at %s says that it is %s/%s", address, s.Cell, s.Node)
	}
	return s, nil
}

// tellLeader has a cell's leader do something in an operator's name, and returns
// the leader's status after it.
func (g *Gateway) tellLeader(ctx context.Context, name tenant.CellName, path string, what any) (nodeStatus, error) {
	raw, err := json.Marshal(what)
	if err != nil {
		return nodeStatus{}, err
	}
	t := &task{
		inner: &hop.Request{Method: http.MethodPost, Path: path, Body: raw,
			Header: http.Header{"Content-Type": {"application/json"}, problem.HeaderRequestID: {problem.RequestID(ctx)}}},
		target: func(again bool) (*cell, identity.Context, error) {
			c, err := g.cells.find(name, again)
			if err != nil {
				return nil, identity.Context{}, err
			}
			return c, identity.Context{Cell: c.name, CellKey: c.key, Act: identity.ByOperator, Actor: "gateway:" + tenant.UserID(g.cfg.Name)}, nil
		},
	}
	var got collected
	if err := g.ask(ctx, t, &got); err != nil {
		return nodeStatus{}, err
	}
	if err := got.err(); err != nil {
		return nodeStatus{}, err
	}
	var s nodeStatus
	if err := json.Unmarshal(got.body.Bytes(), &s); err != nil {
		return s, fmt.Errorf("answer of the leader of %s: %w", name, err)
	}
	return s, nil
}

// describe fills in what the leader and the node say.
func (g *Gateway) describe(ctx context.Context, out *nodeChangeJSON, lead nodeStatus) {
	out.State, out.Leader, out.Voters, out.Problem = nodeCatchingUp, lead.Applied, 0, ""
	for _, m := range lead.Members {
		if m.Voter {
			out.Voters++
		}
		if m.Voter && m.ID == out.ServerID {
			out.State = nodeVoter
		}
	}
	said, err := g.statusAt(ctx, out.Cell, out.Node, out.Address)
	switch {
	case err != nil:
		out.Problem = err.Error()
	case said.ServerID != out.ServerID:
		out.Problem = "it has lost its data since it was added"
	default:
		out.Applied, out.Absent = said.Applied, said.Absent
	}
}

// awaitVote waits until the node has its vote, for a bounded time. What can't be
// learned now is learned at the next look.
func (g *Gateway) awaitVote(ctx context.Context, out *nodeChangeJSON) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	tick := time.NewTicker(catchUpPoll)
	defer tick.Stop()
	for out.State != nodeVoter {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c, err := g.cells.find(out.Cell, true)
		if err != nil {
			continue
		}
		for _, s := range each(c.nodes, func(n *node) (s nodeStatus) {
			_ = g.askNode(ctx, n, statusPath, probeTimeout, &s) // who does not answer does not lead
			return s
		}) {
			if s.IsLeader {
				g.describe(ctx, out, s)
			}
		}
	}
}

// operatorRemoveNode removes a node from a cell: from its Raft group, and then from
// the directory, so that gateways know every node that may lead.
func (g *Gateway) operatorRemoveNode(o *operation) error {
	var in struct {
		Reason string `json:"reason"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if err := body.Text("reason", in.Reason, maxReason); err != nil {
		return err
	}
	name := o.vars["node"]
	if !tenant.ValidID(name) {
		return fault.Unknown()
	}
	from, err := g.cellNamed(o.r.Context(), o.vars["cell"])
	if err != nil {
		return err
	}
	key, err := o.key(from.Name, name, in.Reason)
	if err != nil {
		return err
	}
	// The audit first: once the cell has been told, the node goes, whether or not this
	// call comes to its end.
	if err := g.record(o, directory.AuditEntry{Subject: string(from.Name) + "/" + name, Detail: in.Reason}); err != nil {
		return err
	}
	lead, err := g.tellLeader(o.r.Context(), from.Name, "/internal/members/"+name+"/remove", struct{}{})
	if err != nil {
		return err
	}
	address, known := from.Nodes[name]
	if known {
		if _, err := g.dir.RemoveNode(o.r.Context(), o.by, key, from.Name, name, in.Reason); err != nil {
			return err
		}
	}
	out := nodeChangeJSON{Cell: from.Name, Node: name, Address: address, State: nodeRemoved, Leader: lead.Applied}
	for _, m := range lead.Members {
		if m.Voter {
			out.Voters++
		}
	}
	return o.answer(http.StatusOK, out, false)
}
