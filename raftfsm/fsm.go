package raftfsm

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/failpoint"
	"celld/store/room"
)

// errStopped is the answer of a member that applies nothing more.
var errStopped = errors.New("this member has stopped")

// fsm applies the log to the files of a Space. Raft calls it from one goroutine;
// within a batch the targets are applied in parallel.
type fsm struct {
	table    *Table
	guard    func(*store.Tx, Definition, *Command) error
	space    Space
	progress *progress
	metrics  *metrics
	waiting  func() bool // whether any command of this process waits for its outcome
	fail     func(error)
	group    string
	dir      string // of the group, for what Restore stages
	room     *room.Room
	dead     <-chan struct{} // closed when the member stops

	// floor is the index of the newest snapshot: the log holds everything above it,
	// and may lack what is below.
	floor atomic.Uint64

	mu       sync.Mutex // held while a batch is applied, and by whoever needs the files to stand still
	failed   bool
	restored restored

	// Scratch of the batch being applied.
	byTarget map[string]*work
	works    []*work
}

// work is what one batch has for one target, in log order.
type work struct {
	target string
	steps  []step
	marked bool // there are marks among them
}

type step struct {
	index   uint64
	command *Command
	result  *result
}

// result is what became of one command. The answer to an entry is its commands'
// results in their order.
type result struct {
	outcome Outcome
	err     error
}

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. The answer to a command entry is a
// []result, or an error if it was not applied.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	mayApply := f.awaitRoom(func() bool { return haveCommands(logs) && !f.inMemory(logs) })
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if !mayApply {
		f.failed = true
	}
	if !f.failed {
		took := f.metrics.applying()
		failpoint.Here(failpoint.ApplyBegun)
		err = f.apply(logs, answers)
		failpoint.Here(failpoint.ApplyDone)
		took(len(logs))
	}
	if err != nil {
		f.failed = true
		f.fail(fmt.Errorf("apply log entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err))
	}
	if f.failed {
		for i := range answers {
			answers[i] = errStopped
		}
		return answers
	}
	last := logs[len(logs)-1]
	f.progress.advance(last.Index, last.Term)
	f.restored = restored{}
	return answers
}

// awaitRoom returns when there is disk space for what needs some, false if the
// member stops before. Raft hands out some batches more meanwhile and then waits too;
// a leader has stopped to propose by then, and a follower looks slow. It is not
// done under the lock: what is applied can be listed and copied.
func (f *fsm) awaitRoom(needed func() bool) bool {
	for f.room.Look() == room.None && needed() {
		changed := f.room.Changed()
		if f.room.Level() != room.None {
			break
		}
		select {
		case <-changed:
		case <-f.dead:
			return false
		}
	}
	return true
}

// inMemory reports whether a batch can be applied without a byte of disk: its
// targets' files are open and their transactions stay open. A leader that has run
// out of space then still applies what was committed before, and serves reads.
func (f *fsm) inMemory(logs []*raft.Log) bool {
	space, ok := f.space.(Resident)
	if !ok {
		return false
	}
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		e, err := decodeEntry(l.Data)
		if err != nil {
			return true // apply says what is wrong with it
		}
		for i := range e.Commands {
			if c := &e.Commands[i]; c.Target == "" || !space.Resident(c.Target) {
				return false
			}
		}
	}
	return true
}

// apply goes through the batch in stretches of entries that may be mixed: those
// for targets, or those for the group's own file.
func (f *fsm) apply(logs []*raft.Log, answers []any) error {
	own := false
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		e, err := decodeEntry(l.Data)
		if err != nil {
			err = fmt.Errorf("entry %d: %w", l.Index, err)
			return errors.Join(f.flush(), err)
		}
		if len(e.Commands) == 0 {
			continue
		}
		if e.own() != own {
			if err := f.flush(); err != nil {
				return err
			}
			own = e.own()
		}
		results := make([]result, len(e.Commands))
		answers[i] = results
		for j := range e.Commands {
			f.add(step{index: l.Index, command: &e.Commands[j], result: &results[j]})
		}
	}
	return f.flush()
}

func (f *fsm) add(s step) {
	w := f.byTarget[s.command.Target]
	if w == nil {
		w = &work{target: s.command.Target}
		f.byTarget[s.command.Target] = w
		f.works = append(f.works, w)
	}
	w.steps = append(w.steps, s)
	w.marked = w.marked || f.isMark(s.command)
}

// flush applies what was gathered, and all of it even if some fails: every
// target is at its own entry boundary afterwards.
func (f *fsm) flush() error {
	works := f.works
	defer func() {
		clear(f.byTarget)
		clear(f.works)
		f.works = f.works[:0]
	}()
	if len(works) == 0 {
		return nil
	}
	hands := min(len(works), runtime.GOMAXPROCS(0))
	if hands == 1 {
		var err error
		for _, w := range works {
			err = errors.Join(err, f.applyTo(w))
		}
		return err
	}
	var (
		next atomic.Int64
		errs = make([]error, len(works))
		wg   sync.WaitGroup
	)
	for range hands {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(works); i = next.Add(1) - 1 {
				errs[i] = f.applyTo(works[i])
				failpoint.Here(failpoint.ApplyBetween)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// applyTo applies one target's commands in one transaction. An error is a local
// failure.
func (f *fsm) applyTo(w *work) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("apply to %q: panic: %v\n%s", w.target, p, debug.Stack())
		}
	}()
	file, release, err := f.acquire(w.target)
	if errors.Is(err, ErrAbsent) {
		return f.pass(w)
	}
	if refusal := refusalOf(err); refusal != nil {
		return f.refuse(w, refusal)
	}
	if err != nil {
		return fmt.Errorf("open the file of %q: %w", w.target, err)
	}
	defer release()
	if w.marked {
		err = f.applyAround(file, w)
	} else {
		err = f.applySteps(file, w)
	}
	if w.target == "" || !store.IsCorrupt(err) {
		return err
	}
	// One bad file must not stop the others: this one is fetched anew.
	if worse := f.space.Damaged(w.target, err); worse != nil {
		return errors.Join(err, worse)
	}
	return f.pass(w)
}

// acquire waits while a file cannot be opened for want of disk space, or because
// every file that is open holds a transaction that cannot commit for want of it:
// that one replica's disk is full refuses no command. The batch has begun by then,
// so it waits under the lock.
func (f *fsm) acquire(target string) (*store.File, func(), error) {
	file, release, err := f.space.Acquire(target)
	for errors.Is(err, room.ErrFull) && f.room != nil {
		changed := f.room.Changed() // before the next attempt, so that no change is missed
		if file, release, err = f.space.Acquire(target); !errors.Is(err, room.ErrFull) {
			break
		}
		select {
		case <-changed:
		case <-f.dead:
			return nil, nil, errStopped
		}
	}
	return file, release, err
}

// applySteps applies one target's commands, marks excepted.
func (f *fsm) applySteps(file *store.File, w *work) (err error) {
	had := file.Control().Applied
	if w.steps[len(w.steps)-1].index > had {
		err = file.Update(func(tx *store.Tx) error {
			for _, s := range w.steps {
				if s.index <= had {
					continue
				}
				if err := f.applyOne(tx, s); err != nil {
					return fmt.Errorf("entry %d: %w", s.index, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("apply to %s: %w", file.Path(), err)
		}
	}
	return f.answerSkipped(file, w, had)
}

// answerSkipped answers for commands whose entries the file holds already. Only
// the key row can tell whether such a command had its effect.
func (f *fsm) answerSkipped(file *store.File, w *work, had uint64) error {
	if w.steps[0].index > had {
		return nil
	}
	ask := f.waiting()
	for _, s := range w.steps {
		if s.index > had {
			break
		}
		s.result.err = ErrUnknown
		f.metrics.skipped.Inc()
		if !ask || s.command.Key == nil {
			continue
		}
		var stored []byte
		err := file.View(func(c *store.Conn) (err error) {
			stored, err = lookUp(c, file.Control().Tenant, s.command.Key)
			return err
		})
		switch refusal := refusalOf(err); {
		case refusal != nil:
			s.result.err = refusal
		case err != nil:
			return fmt.Errorf("look up a key in %s: %w", file.Path(), err)
		case stored != nil:
			s.result.err = nil
			s.result.outcome = Outcome{Index: s.index, Result: stored, Replayed: true}
		}
	}
	return nil
}
