package node

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"celld/node/api"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	// maxMembers bounds a cell's nodes.
	maxMembers = 9
	// maxLag is how many log entries behind the leader a node may be and still
	// count as one that the cell can go on with.
	maxLag = 1000
)

// members is the cell's membership as operators change it. Every step looks at what
// is there and does what is missing, so that it may be asked for again at any time.
type members struct{ n *Node }

// Add implements api.Members: the node gets the log, without a vote. It gets its
// vote (Node.promote) when nothing is missing on it.
func (m members) Add(ctx context.Context, in api.NewMember) error {
	n := m.n
	if !n.group.IsLeader() {
		return raftfsm.ErrNotLeader
	}
	if err := checkNew(in); err != nil {
		return err
	}
	at, err := n.group.Membership()
	if err != nil {
		return err
	}
	done, err := n.mayAdd(at, in)
	if done || err != nil {
		return err
	}
	said, err := n.ask(ctx, peer{in.Node, in.Address})
	if err != nil {
		return fault.New(fault.Conflict, "node-unreachable",
			"the cell's leader %s can't reach %s at %s; check address and certificate, and that it runs", n.cfg.Name, in.Node, in.Address).Because(err)
	}
	key, err := n.space.Key()
	if err != nil {
		return err
	}
	_, member := at.Find(func(m raftfsm.Member) bool { return m.ID == in.ServerID })
	if err := isNew(said, in, string(key), member); err != nil {
		return err
	}
	if in.Check {
		return nil
	}
	n.cfg.Logger.Info("adding a member", "member", in.Node, "server_id", in.ServerID, "address", in.Address)
	return n.group.AddNonvoter(ctx, at.Index, in.ServerID, in.Address)
}

func checkNew(in api.NewMember) error {
	if host, port, err := net.SplitHostPort(in.Address); err != nil || host == "" || port == "" || len(in.Address) > 255 || strings.ContainsAny(in.Address, "@ ") {
		return fault.New(fault.Invalid, "invalid-field", "address must be host:port").With("field", "address")
	}
	if !tenant.ValidID(in.Node) {
		return fault.New(fault.Invalid, "invalid-field", "a node's name is a letter and up to 31 letters, digits or hyphens").With("field", "node")
	}
	if raftfsm.NameOf(in.ServerID) != in.Node || in.ServerID == in.Node {
		return fault.New(fault.Conflict, "node-not-joining",
			"the node %s does not join: it has the server id %q of a node that forms a cell. Start it with join and an empty data folder", in.Node, in.ServerID)
	}
	return nil
}

// mayAdd holds a new member against those that are there. done means that it is one
// of them.
func (n *Node) mayAdd(at raftfsm.Membership, in api.NewMember) (done bool, err error) {
	for _, have := range at.Members {
		name := short(have.Name)
		switch {
		case have.ID == in.ServerID && n.addressOf(name, have.Address) == in.Address:
			return true, nil
		case have.ID == in.ServerID:
			return false, nil // another address
		case name == in.Node:
			return false, fault.New(fault.Conflict, "node-is-another", "%s has a member %s with the server id %s, but the node at %s has %s: "+
				"it has lost its data or is another machine. Remove the member first: celld admin cell remove-node %s %s",
				n.cfg.Cell, name, have.ID, in.Address, in.ServerID, n.cfg.Cell, name)
		case n.addressOf(name, have.Address) == in.Address:
			return false, fault.New(fault.Conflict, "address-taken", "the member %s has the address %s", name, in.Address)
		}
	}
	if named := n.cfg.Peers[in.Node]; named != "" && named != in.Address {
		return false, fault.New(fault.Conflict, "address-differs", "the settings of %s say that %s listens at %s, not at %s; add it there, or change the settings first",
			n.cfg.Name, in.Node, named, in.Address)
	}
	if len(at.Members) >= maxMembers {
		return false, fault.New(fault.Conflict, "too-many-nodes", "a cell has at most %d nodes; remove one first", maxMembers)
	}
	return false, nil
}

// isNew holds what a node says about itself against what was asked, and against the
// cell's key; member says whether the cell has that server id already.
func isNew(said api.Status, in api.NewMember, key string, member bool) error {
	switch {
	case said.ServerID != in.ServerID:
		return fault.New(fault.Conflict, "node-is-another", "the node at %s has the server id %s, not %s; retry", in.Address, said.ServerID, in.ServerID)
	case said.CellKey != "" && said.CellKey != key:
		return fault.New(fault.Conflict, "another-cell", "the node at %s has data of another cell of this name; start it with an empty data folder", in.Address)
	case said.LastIndex > 0 && !member:
		return fault.New(fault.Conflict, "node-was-removed", "the node at %s was a member under the server id %s and was removed; "+
			"start it with an empty data folder, so that it gets a new one", in.Address, said.ServerID)
	}
	return nil
}

// Remove implements api.Members: the node is no member any more. It notices and
// ends. A leader hands leadership over first, and its successor removes it.
func (m members) Remove(ctx context.Context, name string) error {
	n := m.n
	if !n.group.IsLeader() {
		return raftfsm.ErrNotLeader
	}
	at, err := n.group.Membership()
	if err != nil {
		return err
	}
	out, found := at.Find(func(m raftfsm.Member) bool { return short(m.Name) == name })
	if !found {
		return nil
	}
	if out.Voter {
		if err := n.mayRemove(ctx, at, out); err != nil {
			return err
		}
	}
	if out.ID == n.group.ID() {
		n.cfg.Logger.Info("handing leadership over, to be removed")
		if err := n.group.Transfer(ctx); err != nil {
			return raftfsm.ErrMembershipBusy.Because(fmt.Errorf("hand leadership over: %w", err))
		}
		return raftfsm.ErrNotLeader
	}
	n.cfg.Logger.Info("removing a member", "member", name, "server_id", out.ID)
	return n.group.Remove(ctx, at.Index, out.ID)
}

// health is what a node that stays says, or why it says nothing.
type health struct {
	member raftfsm.Member
	said   api.Status
	err    error
}

// mayRemove refuses to remove a voter while what stays could not carry the cell:
// a majority of it must answer, be close behind, and lack no tenant.
func (n *Node) mayRemove(ctx context.Context, at raftfsm.Membership, out raftfsm.Member) error {
	var stay []raftfsm.Member
	for _, m := range at.Members {
		if m.Voter && m.ID != out.ID {
			stay = append(stay, m)
		}
	}
	if len(stay) == 0 {
		return fault.New(fault.Conflict, "last-node", "%s is the cell's last node with a vote; add another one first", short(out.Name))
	}
	applied := n.group.Applied()
	all := n.healths(ctx, stay)
	for _, h := range all {
		if h.err != nil {
			n.cfg.Logger.Info("a member does not answer", "member", short(h.member.Name), "error", h.err)
		}
	}
	return canCarry(all, short(out.Name), applied)
}

// canCarry judges whether the voters that stay can carry the cell without out, when
// the leader has applied so many entries.
func canCarry(stay []health, out string, applied uint64) error {
	good, bad := 0, []string{}
	for _, h := range stay {
		name := short(h.member.Name)
		switch {
		case h.err != nil:
			bad = append(bad, name+" does not answer")
		case h.said.Absent > 0:
			return fault.New(fault.Conflict, "node-has-absences", "%s lacks %d tenants, which it is fetching; wait until it has them", name, h.said.Absent)
		case h.said.ServerID != h.member.ID:
			bad = append(bad, name+" has lost its data")
		case !h.said.Ready:
			bad = append(bad, name+" is not ready")
		case h.said.Applied+maxLag < applied:
			bad = append(bad, fmt.Sprintf("%s is %d log entries behind", name, applied-h.said.Applied))
		default:
			good++
		}
	}
	if good < len(stay)/2+1 {
		return fault.New(fault.Conflict, "quorum-at-risk", "without %s only %d of %d nodes could go on, which is no majority (%s); "+
			"bring them back or add another node first", out, good, len(stay), strings.Join(bad, ", "))
	}
	return nil
}

// healths asks all of ms at the same time.
func (n *Node) healths(ctx context.Context, ms []raftfsm.Member) []health {
	out := make([]health, len(ms))
	var wg sync.WaitGroup
	for i, m := range ms {
		wg.Go(func() {
			out[i].member = m
			if m.ID == n.group.ID() {
				out[i].said, out[i].err = n.Status()
				return
			}
			name := short(m.Name)
			out[i].said, out[i].err = n.ask(ctx, peer{name, n.addressOf(name, m.Address)})
		})
	}
	wg.Wait()
	return out
}
