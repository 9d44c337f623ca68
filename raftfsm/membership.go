package raftfsm

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"celld/store/fault"
)

// Membership is a group's latest configuration as one member knows it.
type Membership struct {
	Index     uint64 // of the log entry that holds it; changes name the one that they follow
	Committed bool
	Members   []Member
}

// Find returns the member with an id or, if it has none, with a name.
func (m Membership) Find(of func(Member) bool) (Member, bool) {
	for _, member := range m.Members {
		if of(member) {
			return member, true
		}
	}
	return Member{}, false
}

// ErrMembershipBusy means that nothing was changed: another change is under way,
// or came first.
var ErrMembershipBusy = (&fault.Error{Kind: fault.Unavailable, Slug: "membership-busy", Detail: "another change of the cell's members is under way; retry"}).After(time.Second)

// changeTimeout bounds how long a change waits for an earlier one.
const changeTimeout = 5 * time.Second

// Membership is the latest configuration that this member knows.
func (g *Group) Membership() (Membership, error) {
	future := g.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return Membership{}, err
	}
	m := Membership{Index: future.Index(), Committed: future.Index() <= g.raft.CommitIndex()}
	for _, s := range future.Configuration().Servers {
		logical, address := splitAddress(s.Address)
		m.Members = append(m.Members, Member{ID: string(s.ID), Name: NameOf(logical), Address: address, Voter: s.Suffrage == raft.Voter})
	}
	return m, nil
}

// ID is this member's id.
func (g *Group) ID() string { return g.cfg.ID }

// LastIndex is the last entry of this member's log, 0 for one that never heard
// from a leader.
func (g *Group) LastIndex() uint64 { return g.raft.LastIndex() }

// Committed is the last entry that this member knows to be committed.
func (g *Group) Committed() uint64 { return g.raft.CommitIndex() }

// AddNonvoter lets a member have the log without a vote, or gives a member that
// is one already another address. Its logical name is the group's name and the
// id. Only the leader can; after names the configuration that is changed.
func (g *Group) AddNonvoter(ctx context.Context, after uint64, id, address string) error {
	return g.change(ctx, func() raft.IndexFuture {
		return g.raft.AddNonvoter(raft.ServerID(id), g.address(id, address), after, changeTimeout)
	})
}

// Promote gives a member its vote.
func (g *Group) Promote(ctx context.Context, after uint64, m Member) error {
	return g.change(ctx, func() raft.IndexFuture {
		return g.raft.AddVoter(raft.ServerID(m.ID), g.address(m.ID, m.Address), after, changeTimeout)
	})
}

// Remove ends a membership. The member learns of it by itself, if it runs.
func (g *Group) Remove(ctx context.Context, after uint64, id string) error {
	return g.change(ctx, func() raft.IndexFuture { return g.raft.RemoveServer(raft.ServerID(id), after, changeTimeout) })
}

// address is what Raft's configuration has of a member: a founding member's
// settings name its address, that of a later one is carried here.
func (g *Group) address(id, hostport string) raft.ServerAddress {
	return joinAddress(g.cfg.Group+"/"+id, hostport)
}

// change makes a change and waits for it to be committed. Raft answers when it is,
// when an earlier one takes too long, or when this member leads no more.
func (g *Group) change(ctx context.Context, request func() raft.IndexFuture) error {
	if !g.IsLeader() {
		return ErrNotLeader
	}
	done := make(chan error, 1)
	go func() { done <- request().Error() }() // ends with Raft at the latest
	select {
	case err := <-done:
		return changed(err)
	case <-ctx.Done():
		return ErrUnknown.Because(context.Cause(ctx))
	case <-g.dead:
		return ErrUnknown.Because(errStopped)
	}
}

func changed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader.Because(err)
	case errors.Is(err, raft.ErrEnqueueTimeout), strings.HasPrefix(err.Error(), "configuration changed since"): // the library has no error value for it
		return ErrMembershipBusy.Because(err)
	}
	return ErrUnknown.Because(err)
}
