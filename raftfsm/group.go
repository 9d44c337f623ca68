package raftfsm

import (
	"context"
	"time"
)

// Group is one member of a Raft group. Its methods may be called from any
// goroutine.
type Group struct{}

// Open starts a member. With an empty Dir it fails unless Bootstrap is set: a
// wiped member must not come back under its old id.
func Open(cfg Config) (*Group, error) { panic("not yet") }

// Propose has a command applied and returns what became of it. A refusal is the
// *fault.Error of guard or handler. ErrNotLeader, ErrBusy and a fault of kind
// TooLarge are certain: nothing was proposed. ErrUnknown is not. A ctx that ends
// before the command was proposed gives ErrBusy with ctx's error as its cause,
// afterwards ErrUnknown.
func (g *Group) Propose(ctx context.Context, c Command) (Outcome, error) { panic("not yet") }

// ReadIndex returns an index such that a read of the local files sees every
// write that was acknowledged before the call; they have been applied when it
// returns. Only the leader can: ErrNotLeader elsewhere. A follower that waits
// for the same index (WaitApplied) may then serve the read just as well.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) { panic("not yet") }

// WaitApplied returns when this member has applied index, which came from an
// Outcome or from ReadIndex. When ctx ends first: ErrBehind with ctx's error as
// its cause.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { panic("not yet") }

// Applied is the last entry that this member has applied, with an effect or not.
func (g *Group) Applied() uint64 { panic("not yet") }

// Term is the current term.
func (g *Group) Term() uint64 { panic("not yet") }

// IsLeader reports whether this member leads, as far as it knows.
func (g *Group) IsLeader() bool { panic("not yet") }

// Leader returns id and logical name of the leader, if one is known.
func (g *Group) Leader() (id, name string, ok bool) { panic("not yet") }

// LeaderSince returns since when this member leads and has applied an entry of
// its own term; the time has a monotonic reading.
func (g *Group) LeaderSince() (time.Time, bool) { panic("not yet") }

// Servers lists the members of the latest configuration.
func (g *Group) Servers() ([]Member, error) { panic("not yet") }

// Ready reports whether this member has applied all that was committed when it
// first heard from a leader.
func (g *Group) Ready() bool { panic("not yet") }

// Transfer hands leadership to the most advanced follower.
func (g *Group) Transfer(ctx context.Context) error { panic("not yet") }

// Snapshot takes a snapshot now and cuts the log behind it.
func (g *Group) Snapshot() error { panic("not yet") }

// Failed delivers the error that stopped this member: it applies nothing more
// and its Raft traffic is cut. Its owner closes it and ends the process.
func (g *Group) Failed() <-chan error { panic("not yet") }

// Close stops the member and its transport. Queued commands get ErrNotLeader,
// those under way their outcome or ErrUnknown. It does not hand leadership over:
// that is Transfer.
func (g *Group) Close() error { panic("not yet") }
