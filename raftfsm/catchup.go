package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/hashicorp/raft"

	"celld/store"
)

// ErrTooOld says that a copy of a file misses entries that are in no log here any
// more: a newer copy is needed.
var ErrTooOld = errors.New("the copy is older than this member's log")

const (
	// roundEntries is how many log entries one round of catching up reads, and
	// commits together at the most.
	roundEntries = 512
	// lastEntries is how many entries may be left for the last stretch, which
	// holds apply up.
	lastEntries = 64
)

// Floor is the index from which on this member's log can catch a file up: a copy
// that holds everything up to there, or further, will do.
func (g *Group) Floor() uint64 { return g.fsm.floor.Load() }

// CatchUp applies to file, a copy of a target's file that holds everything up to
// the entry from, what the log has had for that target since, by the very steps
// of apply. Then it calls place, which puts the file in its place, while apply
// stands still: there is no entry between what the file holds and what is applied
// to it next. Nobody else uses the file meanwhile.
//
// ErrTooOld: the log no longer reaches back to from. After any other error the
// file is of no use; place was called only if the error is its own.
func (g *Group) CatchUp(ctx context.Context, target string, file *store.File, from uint64, place func() error) error {
	return g.fsm.catchUp(ctx, g.logs, target, file, from, place)
}

func (f *fsm) catchUp(ctx context.Context, logs raft.LogStore, target string, file *store.File, from uint64, place func() error) error {
	at := from
	for at+lastEntries < f.progress.applied.Load() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		end := min(f.progress.applied.Load(), at+roundEntries)
		if err := f.applyLog(logs, target, file, at, end); err != nil {
			return err
		}
		at = end
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return errStopped
	}
	if err := f.applyLog(logs, target, file, at, f.progress.applied.Load()); err != nil {
		return err
	}
	return place()
}

// applyLog applies a target's commands of the entries behind from, up to and
// including to, which are committed. Marks are left out: they were told when they
// were applied.
func (f *fsm) applyLog(logs raft.LogStore, target string, file *store.File, from, to uint64) (err error) {
	if from < f.floor.Load() {
		return ErrTooOld
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("catch %q up: panic: %v\n%s", target, p, debug.Stack())
		}
	}()
	w := &work{target: target}
	for index := from + 1; index <= to; index++ {
		var l raft.Log
		if err := logs.GetLog(index, &l); err != nil {
			if from < f.floor.Load() { // cut meanwhile
				return ErrTooOld
			}
			return fmt.Errorf("read log entry %d: %w", index, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		e, err := decodeEntry(l.Data)
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		for i := range e.Commands {
			if c := &e.Commands[i]; c.Target == target && !f.isMark(c) {
				w.steps = append(w.steps, step{index: index, command: c, result: new(result)})
			}
		}
	}
	if len(w.steps) == 0 {
		return nil
	}
	return f.applySteps(file, w)
}
