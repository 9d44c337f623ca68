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
	// A round of catching up reads at most roundEntries log entries, and commits at
	// most roundCommands of their commands together, or as many as come in one entry
	// more than roundBytes.
	roundEntries  = 512
	roundCommands = 2048
	roundBytes    = 8 << 20
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
		var err error
		if at, err = f.applyLog(logs, target, file, at, min(f.progress.applied.Load(), at+roundEntries)); err != nil {
			return err
		}
		// Nothing else moves what was written into the file, and place would do all
		// of it while apply stands still.
		if err = file.Checkpoint(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return errStopped
	}
	for applied := f.progress.applied.Load(); at < applied; {
		var err error
		if at, err = f.applyLog(logs, target, file, at, applied); err != nil {
			return err
		}
	}
	return place()
}

// applyLog applies a target's commands of the entries behind from, up to and
// including to, which are committed, or fewer: up to and including reached. Marks
// are left out: they were told when they were applied.
func (f *fsm) applyLog(logs raft.LogStore, target string, file *store.File, from, to uint64) (reached uint64, err error) {
	if from < f.floor.Load() {
		return from, ErrTooOld
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("catch %q up: panic: %v\n%s", target, p, debug.Stack())
		}
	}()
	w, size := &work{target: target}, 0
	for reached = from; reached < to && len(w.steps) < roundCommands && size < roundBytes; reached++ {
		index := reached + 1
		var l raft.Log
		if err := logs.GetLog(index, &l); err != nil {
			if from < f.floor.Load() { // cut meanwhile
				return from, ErrTooOld
			}
			return from, fmt.Errorf("read log entry %d: %w", index, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		e, err := decodeEntry(l.Data)
		if err != nil {
			return from, fmt.Errorf("entry %d: %w", index, err)
		}
		before := len(w.steps)
		for i := range e.Commands {
			if c := &e.Commands[i]; c.Target == target && !f.isMark(c) {
				w.steps = append(w.steps, step{index: index, command: c, result: new(result)})
			}
		}
		if len(w.steps) > before {
			size += len(l.Data) // all of it stays in memory
		}
	}
	if len(w.steps) == 0 {
		return reached, nil
	}
	return reached, f.applySteps(file, w)
}
