package raftfsm

import (
	"fmt"

	"celld/store"
)

// verdict is how a command that leaves no effect ends. It is told from an effect
// that could not be undone by being the very error that comes back.
type verdict struct {
	refusal  error
	replayed []byte
	failure  error
}

func (v *verdict) Error() string { return "no effect" }

// Unwrap gives the failure, for what a failed undo says.
func (v *verdict) Unwrap() error { return v.failure }

func verdictOn(err error) *verdict {
	if refusal := refusalOf(err); refusal != nil {
		return &verdict{refusal: refusal}
	}
	return &verdict{failure: err}
}

// applyOne applies one command and sets its result. An error is a local failure.
func (f *fsm) applyOne(tx *store.Tx, s step) error {
	def, known := f.table.byNumber[s.command.Number]
	if !known {
		return fmt.Errorf("unknown command %d: run the program that knows it", s.command.Number)
	}
	tx.Index = s.index
	s.result.outcome.Index = s.index
	within, run := tx.Savepoint, f.runWhole
	if def.plan != nil {
		within, run = tx.Direct, f.runPlanned
	}
	err := within(func() error {
		out, v := f.run(tx, def, s, run)
		if v != nil {
			return v
		}
		s.result.outcome.Result = out
		return nil
	})
	if err == nil {
		f.metrics.applied.Inc()
		return nil
	}
	v, intact := err.(*verdict) //nolint:errorlint // wrapped, it is no verdict: something is left of the command
	switch {
	case !intact:
		return fmt.Errorf("command %s (%d): %w", def.Name, def.Number, err)
	case v.failure != nil:
		return fmt.Errorf("command %s (%d): %w", def.Name, def.Number, v.failure)
	case v.refusal != nil:
		s.result.err = v.refusal
		f.metrics.refused(1)
	default:
		s.result.outcome.Result, s.result.outcome.Replayed = v.replayed, true
		f.metrics.replayed.Inc()
	}
	return nil
}

// run is the one order in which every command is checked and applied.
func (f *fsm) run(tx *store.Tx, def Definition, s step, handle func(*store.Tx, Definition, *Command) ([]byte, *verdict)) ([]byte, *verdict) {
	c, ctl := s.command, tx.Control()
	tx.Now = max(c.At, ctl.LastTime)
	if err := f.guard(tx, def, c); err != nil {
		return nil, verdictOn(err)
	}
	out, v := handle(tx, def, c)
	if v != nil {
		return nil, v
	}
	ctl.Sequence++
	ctl.LastTime = tx.Now
	ctl.Applied = s.index
	return out, nil
}

// runWhole runs a handler in one part: what the key has stored stands before it.
func (f *fsm) runWhole(tx *store.Tx, def Definition, c *Command) ([]byte, *verdict) {
	if v := replay(tx, c); v != nil {
		return nil, v
	}
	out, err := def.apply(tx, c)
	if err != nil {
		return nil, verdictOn(err)
	}
	if c.Key != nil {
		if err := record(tx, c.Key, out); err != nil {
			return nil, &verdict{failure: err}
		}
	}
	return out, nil
}

// runPlanned runs a handler in two parts with the outcomes of runWhole. The key's
// row is the first to be written, and that it can't be written twice tells a
// replay, so that a command with an effect looks for the key once. What the plan
// refuses may be the repetition of what had its effect: then the key is asked.
func (f *fsm) runPlanned(tx *store.Tx, def Definition, c *Command) ([]byte, *verdict) {
	out, write, err := def.plan(tx, c)
	if err != nil {
		v := verdictOn(err)
		if v.refusal != nil {
			if earlier := replay(tx, c); earlier != nil {
				return nil, earlier
			}
		}
		return nil, v
	}
	if c.Key != nil {
		err := record(tx, c.Key, out)
		if store.IsUnique(err) {
			if earlier := replay(tx, c); earlier != nil {
				return nil, earlier
			}
		}
		if err != nil {
			return nil, &verdict{failure: err}
		}
	}
	if err := write(); err != nil {
		v := verdictOn(err)
		if v.refusal != nil && c.Key != nil {
			if err := takeBack(tx); err != nil {
				return nil, &verdict{failure: err}
			}
		}
		return nil, v
	}
	return out, nil
}

// replay is what the command's key has to say: the first answer, a refusal of
// another request under it, or nil.
func replay(tx *store.Tx, c *Command) *verdict {
	if c.Key == nil {
		return nil
	}
	stored, err := lookUp(tx.Conn, tx.Control().Tenant, c.Key)
	switch {
	case err != nil:
		return verdictOn(err)
	case stored != nil:
		return &verdict{replayed: stored}
	}
	return nil
}
