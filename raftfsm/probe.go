package raftfsm

import (
	"errors"
	"fmt"

	"celld/store"
)

// Mark is the body of a command of class Probe: a moment of its target's history
// that all replicas agree on.
type Mark struct {
	ID     string `cbor:"1,keyasint"` // random, for whoever asks later what was seen
	Urgent bool   `cbor:"2,keyasint"` // somebody waits for what comes of it
}

// Look is what a replica does at a mark. It is called once for each mark that is
// applied, when the target's file f holds every entry up to index and nothing
// that comes after it. Where f cannot be looked at, f is nil and err says why:
// the refusal of Acquire, or ErrPassed. Look is part of apply: it must be quick,
// changes no file, and who wants f for longer acquires it.
type Look func(c *Command, m Mark, index uint64, f *store.File, err error)

// ErrPassed says that a file already held more than a mark allows when the mark
// was applied: the log is being applied again after a restart.
var ErrPassed = errors.New("the file is past the mark")

// DefineMark makes the table line of a mark. A mark is legal in every state of
// its target, has no key and no effect: no savepoint, no sequence, no applied
// index.
func DefineMark(n Number, name string, look Look) Definition {
	return Definition{Number: n, Name: name, Class: Probe, look: func(c *Command, index uint64, f *store.File, why error) error {
		var m Mark
		if err := Decode(c.Body, &m); err != nil {
			return fmt.Errorf("command %s (%d): undecodable body: %w", name, n, err)
		}
		if look != nil {
			look(c, m, index, f, why)
		}
		return nil
	}}
}

// applyAround applies one target's commands with the marks among them. A mark
// counts as being behind all commands of its own log entry, so that whatever
// commits there commits the whole entry.
func (f *fsm) applyAround(file *store.File, w *work) error {
	for rest := w.steps; len(rest) > 0; {
		stretch, marks, n := f.upToMark(rest)
		rest = rest[n:]
		if len(stretch) > 0 {
			if err := f.applySteps(file, &work{target: w.target, steps: stretch}); err != nil {
				return err
			}
		}
		for _, s := range marks {
			at, why := file, error(nil)
			if file.Control().Applied > s.index {
				at, why = nil, ErrPassed
			}
			if err := f.lookAt(s, at, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// upToMark splits off the first n steps: those of the entries up to the first
// mark's, and the marks of that one.
func (f *fsm) upToMark(steps []step) (stretch, marks []step, n int) {
	end := uint64(0)
	for _, s := range steps {
		mark := f.isMark(s.command)
		switch {
		case len(marks) > 0 && s.index > end:
			return stretch, marks, n
		case mark:
			marks, end = append(marks, s), s.index
		default:
			stretch = append(stretch, s)
		}
		n++
	}
	return stretch, marks, n
}

// isMark reports whether a command is of class Probe.
func (f *fsm) isMark(c *Command) bool { return f.table.byNumber[c.Number].Class == Probe }

func (f *fsm) lookAt(s step, file *store.File, why error) error {
	s.result.outcome.Index = s.index
	if err := f.table.byNumber[s.command.Number].look(s.command, s.index, file, why); err != nil {
		return fmt.Errorf("entry %d: %w", s.index, err)
	}
	f.metrics.applied.Inc()
	return nil
}

// refuse answers all of a target's commands alike. Marks are told and have no
// other answer: they were logged, and that is all that they are for.
func (f *fsm) refuse(w *work, refusal error) error {
	for _, s := range w.steps {
		if w.marked && f.isMark(s.command) {
			if err := f.lookAt(s, nil, refusal); err != nil {
				return err
			}
			continue
		}
		s.result.err = refusal
		f.metrics.refused(1)
	}
	return nil
}

// pass answers for the commands of a target that is absent here. Others apply
// them, and this member will find them in the file that it fetches or in its log:
// what became of them is not known here. Marks that were not looked at are told.
func (f *fsm) pass(w *work) error {
	for _, s := range w.steps {
		if w.marked && f.isMark(s.command) {
			if s.result.outcome.Index == 0 {
				if err := f.lookAt(s, nil, ErrAbsent); err != nil {
					return err
				}
			}
			continue
		}
		*s.result = result{err: ErrUnknown}
		f.metrics.skipped.Inc()
	}
	return nil
}
