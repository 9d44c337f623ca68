package raftfsm

import (
	"context"

	"celld/store"
)

// Space is the files that one group replicates into.
type Space interface {
	// Acquire returns the open file of a target and a function that gives it
	// back. "" is the group's own file. A *fault.Error refuses the commands for
	// that target; any other error stops the node.
	Acquire(target string) (f *store.File, release func(), err error)
	// Files lists every file with its applied index.
	Files() ([]store.FileState, error)
	// Sync makes every file durable up to what was committed before the call.
	Sync() error
}

// Group is one member of a Raft group.
type Group struct{}

func (g *Group) Propose(ctx context.Context, c Command) (Outcome, error) { panic("todo") }
func (g *Group) ReadIndex(ctx context.Context) (uint64, error)           { panic("todo") }
func (g *Group) WaitApplied(ctx context.Context, index uint64) error     { panic("todo") }
func (g *Group) Applied() uint64                                         { panic("todo") }
