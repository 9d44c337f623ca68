package raftfsm

import (
	"errors"

	"github.com/hashicorp/raft"

	"celld/store"
)

// Applier applies log entries to the files of a Space by the very steps that a
// Group takes, without a log: for tests of command tables. It is used from one
// goroutine.
type Applier struct {
	fsm    *fsm
	failed error
}

// NewApplier makes an applier. guard may be nil.
func NewApplier(table *Table, guard func(*store.Tx, Definition, *Command) error, space Space) *Applier {
	a := &Applier{}
	if guard == nil {
		guard = func(*store.Tx, Definition, *Command) error { return nil }
	}
	a.fsm = &fsm{
		table: table, guard: guard, space: space, byTarget: make(map[string]*work),
		progress: newProgress(0, func() uint64 { return 0 }), metrics: newMetrics(&Config{}),
		waiting: func() bool { return true }, fail: func(err error) { a.failed = err },
	}
	return a
}

// Applied is what became of one command: an Outcome, or the refusal.
type Applied struct {
	Outcome
	Err error
}

// Apply applies one entry that holds commands. The error is a local failure,
// after which a Group would stop.
func (a *Applier) Apply(index uint64, commands ...Command) ([]Applied, error) {
	data, err := Encode(entry{Version: formatVersion, Commands: commands})
	if err != nil {
		return nil, err
	}
	results, ok := a.fsm.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}).([]result)
	if !ok {
		return nil, errors.Join(errStopped, a.failed)
	}
	applied := make([]Applied, len(results))
	for i, r := range results {
		applied[i] = Applied{r.outcome, r.err}
	}
	return applied, nil
}
