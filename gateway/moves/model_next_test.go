package moves_test

import (
	"fmt"
	"math/bits"
	"slices"

	"celld/gateway/moves"
	"celld/store/tenant"
)

// op names a transition of the model, for counterexamples.
type op uint8

const (
	opPlan op = iota
	opRollback
	opClaim
	opDeliver
	opAnswer
	opCopy
	opShip
	opSync
	opSee
	opTell
	opBreak
	opBroke
	opLose
	opGiveUp
	opFind
	opAccept
	opClose
	opWrite
	opMistake
)

type label struct {
	op   op
	move uint8
	x    uint8
}

func (l label) String() string {
	name := [...]string{"plan transfer", "plan rollback", "new executor claims", "cell gets", "directory logs the answer to", "copy the base",
		"ship the tail", "a majority syncs the staged copy", "executor sees", "directory logs what was seen:", "chain breaks", "directory logs the break",
		"destination loses what was not synced", "directory logs that the move is given up", "directory logs a finding", "operator accepts the finding",
		"directory closes the window", "client's write is accepted at", "the planted mistake"}[l.op]
	switch l.op {
	case opDeliver, opAnswer:
		return fmt.Sprintf("move %d: %s %s", l.move+1, name, moves.Do(l.x))
	case opSee, opTell:
		return fmt.Sprintf("move %d: %s %s", l.move+1, name, map[uint8]string{sawCopied: "copied", sawCaughtUp: "caught up", sawProved: "proved"}[l.x])
	case opWrite:
		return name + [...]string{" C2", " C5"}[l.x]
	}
	return fmt.Sprintf("move %d: %s", l.move+1, name)
}

// next calls yield for every transition from w. Those that progress may not count
// on are faults: they need not happen.
func (md *model) next(w world, yield func(to world, l label, fault bool)) {
	md.plans(w, yield)
	for i := range md.bounds.moves {
		if w.recs[i] == 0 {
			continue
		}
		m := md.rec(&w, i)
		if m.Term == 0 {
			if to, ok := md.event(w, i, moves.Event{What: moves.Claims, Term: 1}); ok {
				yield(to, label{opClaim, uint8(i), 0}, false)
			}
			continue
		}
		md.commands(w, i, yield)
		md.copying(w, i, m, yield)
		md.faults(w, i, m, yield)
	}
	md.writes(w, yield)
}

// plans starts moves: there, back, again after an abort, and rollbacks.
func (md *model) plans(w world, yield func(world, label, bool)) {
	i := 0
	for ; i < md.bounds.moves && w.recs[i] != 0; i++ {
	}
	if i == md.bounds.moves {
		return
	}
	epoch := w.last + 1
	if md.wrong.epochReused {
		epoch = w.epoch + 1
	}
	if i > 0 {
		rollback, undone, err := moves.PlanRollback(md.rec(&w, i-1), moveID(i), tenant.Epoch(w.epoch), tenant.Epoch(epoch), "test", byOp)
		if err == nil {
			to := w
			to.last = max(w.last, epoch)
			to.recs[i], to.recs[i-1] = md.number(rollback), md.number(undone)
			yield(md.send(to), label{opRollback, uint8(i), 0}, true)
		}
		if !md.rec(&w, i-1).State.Over() {
			return
		}
	}
	o := moves.Order{ID: moveID(i), Tenant: "T7", UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", From: end(int(w.placed)), To: end(1 - int(w.placed)),
		EpochFrom: tenant.Epoch(w.epoch), EpochTo: tenant.Epoch(epoch), Reason: "test"}
	m, err := moves.Plan(o, byOp)
	if err != nil {
		md.failures = append(md.failures, err.Error())
		return
	}
	to := w
	to.last = max(w.last, epoch)
	to.recs[i] = md.number(m)
	for k := range i { // an arrival ends the window
		if e := md.rec(&to, k); e.Copy == moves.Kept && e.From.Cell == o.To.Cell {
			to, _ = md.event(to, k, moves.Event{What: moves.ClosesWindow, Reason: "the tenant arrives again"})
		}
	}
	yield(md.send(to), label{opPlan, uint8(i), 0}, true)
}

// commands delivers what is on the network to cells, and answers to the directory.
func (md *model) commands(w world, i int, yield func(world, label, bool)) {
	now := md.rec(&w, i).Next()
	for do := moves.Import; do <= moves.Drop; do++ {
		late := !slices.Contains(now, do) // nobody sends it any more
		if w.sent[i]&(1<<do) == 0 {
			continue
		}
		if to, ok := md.deliver(w, i, do); ok {
			yield(to, label{opDeliver, uint8(i), uint8(do)}, late)
		}
		if e, ok := md.answer(&w, i, do); ok {
			if to, ok := md.event(w, i, e); ok {
				yield(to, label{opAnswer, uint8(i), uint8(do)}, late)
			}
		}
	}
}

// copying is the work between the two cells and what the executor sees of it.
func (md *model) copying(w world, i int, m moves.Move, yield func(world, label, bool)) {
	by := uint8(i + 1)
	from, stage := w.cells[cellOf(m.From)].live, w.cells[cellOf(m.To)].stage
	here := m.Kind == moves.Transfer && stage.by == by && !w.broken[i]
	readable := from.epoch == uint8(m.EpochFrom) && (from.state == tenant.Active || from.state == tenant.Frozen && from.by == by)
	if here && readable {
		to := w
		s := &to.cells[cellOf(m.To)].stage
		if m.State == moves.Copying && uint32(stage.attempt) < m.Attempt {
			*s = staging{by: by, attempt: uint8(m.Attempt), content: from.content}
			to.saw[i] |= sawCopied
			yield(to, label{opCopy, uint8(i), 0}, false)
		} else if uint32(stage.attempt) == m.Attempt {
			if m.State == moves.Copying && w.saw[i]&sawCopied == 0 { // another executor copied it
				to.saw[i] |= sawCopied
				yield(to, label{opSee, uint8(i), sawCopied}, false)
				to = w
			}
			for _, content := range md.sources(from.content) {
				s.content, s.frozen = content, from.state == tenant.Frozen
				if *s != stage {
					s.durable = false
					yield(to, label{opShip, uint8(i), 0}, m.State != moves.CatchingUp && m.State != moves.Frozen)
				}
			}
		}
	}
	if stage.by == by && !stage.durable && stage.attempt != 0 {
		to := w
		to.cells[cellOf(m.To)].stage.durable = true
		yield(to, label{opSync, uint8(i), 0}, m.Decision.Index != 0)
	}
	if here && m.State == moves.CatchingUp && w.saw[i]&sawCaughtUp == 0 && stage.content == from.content && uint32(stage.attempt) == m.Attempt {
		to := w
		to.saw[i] |= sawCaughtUp
		if md.wrong.wBeforeDrain {
			to.early[i] = from.content
		}
		yield(to, label{opSee, uint8(i), sawCaughtUp}, false)
	}
	if _, ok := md.proof(&w, i); ok && m.State == moves.Frozen && w.saw[i]&sawProved == 0 {
		to := w
		to.saw[i] |= sawProved
		yield(to, label{opSee, uint8(i), sawProved}, false)
	}
	md.tell(w, i, m, yield)
}

// sources is what a reader of the source may be given.
func (md *model) sources(content uint8) []uint8 {
	if md.wrong.laggingSource && content != 0 {
		return []uint8{content, content &^ (1 << (bits.Len8(content) - 1))}
	}
	return []uint8{content}
}

// tell brings to the log what the executor saw, however long ago.
func (md *model) tell(w world, i int, m moves.Move, yield func(world, label, bool)) {
	for _, saw := range []uint8{sawCopied, sawCaughtUp, sawProved} {
		if w.saw[i]&saw == 0 {
			continue
		}
		e := moves.Event{Term: m.Term, Attempt: m.Attempt}
		switch saw {
		case sawCopied:
			e.What = moves.Copied
		case sawCaughtUp:
			e.What, e.Proof = moves.CaughtUp, moves.Proof{Source: pages, Staged: pages}
		case sawProved:
			e.What, e.Proof = moves.Proved, moves.Proof{State: tenant.Frozen, Epoch: m.EpochFrom, W: m.W, Source: pages, Staged: pages, Durable: 2, Voters: 3}
			if m.Kind == moves.Rollback {
				e.Proof.State, e.Proof.Epoch, e.Proof.W = tenant.Retired, m.CopyEpoch, m.CopyW
			}
		}
		if to, ok := md.event(w, i, e); ok {
			yield(to, label{opTell, uint8(i), saw}, false)
		}
	}
}

// faults is what may go wrong with move i, and what operators may ask.
func (md *model) faults(w world, i int, m moves.Move, yield func(world, label, bool)) {
	n, by := uint8(i), uint8(i+1)
	undecided := m.State < moves.Committed
	if w.faults > 0 && len(m.Next()) > 0 {
		if to, ok := md.event(w, i, moves.Event{What: moves.Claims, Term: m.Term + 1}); ok {
			to.faults--
			yield(to, label{opClaim, n, 0}, true)
		}
	}
	stage := w.cells[cellOf(m.To)].stage
	if stage.by == by && stage.attempt != 0 {
		if w.faults > 0 && !w.broken[i] && undecided {
			to := w
			to.broken[i] = true
			to.faults--
			yield(to, label{opBreak, n, 0}, true)
		}
		if w.faults > 0 && !stage.durable {
			to := w
			to.cells[cellOf(m.To)].stage = staging{by: by, attempt: stage.attempt}
			to.broken[i] = true
			to.faults--
			yield(to, label{opLose, n, 0}, true)
		}
	}
	if w.broken[i] {
		if to, ok := md.event(w, i, moves.Event{What: moves.Broke, Term: m.Term, Attempt: m.Attempt, Reason: "test"}); ok {
			yield(to, label{opBroke, n, 0}, false)
		}
		if md.wrong.copyAfterFreeze && m.State == moves.Frozen && stage.by == by {
			to := w
			to.cells[cellOf(m.To)].stage = staging{by: by, attempt: stage.attempt}
			to.broken[i] = false
			yield(to, label{opMistake, n, 0}, false)
		}
	}
	if undecided || md.wrong.abortAfterCommit {
		if to, ok := md.event(w, i, moves.Event{What: moves.GivesUp, Term: m.Term, Reason: "test"}); ok {
			yield(to, label{opGiveUp, n, 0}, !md.hopeless(&w, i, m))
		}
	}
	if m.State == moves.Verifying && w.faults > 0 && m.Report.Finding == "" {
		if to, ok := md.event(w, i, moves.Event{What: moves.Compared, Term: m.Term, Reason: "they differ"}); ok {
			to.faults--
			yield(to, label{opFind, n, 0}, true)
		}
	}
	if to, ok := md.event(w, i, moves.Event{What: moves.Accepts, Reason: "test"}); ok {
		yield(to, label{opAccept, n, 0}, false)
	}
	if w.faults > 0 {
		if to, ok := md.event(w, i, moves.Event{What: moves.ClosesWindow, Term: m.Term, Reason: "test"}); ok {
			to.faults--
			yield(to, label{opClose, n, 0}, true)
		}
	}
	if from := &w.cells[cellOf(m.From)].live; md.wrong.thawByTimer && from.state == tenant.Frozen && from.by == by {
		from.state, from.by = tenant.Active, 0
		yield(w, label{opMistake, n, 0}, true)
	}
}

// hopeless reports whether the executor learns from a cell that the move can't go
// on, so that giving it up is its duty.
func (md *model) hopeless(w *world, i int, m moves.Move) bool {
	from, to := w.cells[cellOf(m.From)].live, w.cells[cellOf(m.To)].live
	if m.Kind != moves.Rollback {
		return false
	}
	gone := to.state != tenant.Retired || to.by != uint8(i)
	written := m.State == moves.Freezing && from.state == tenant.Active && mark(0, from.content).Sequence != m.Unwritten
	return gone || written
}

// writes lets a client's next write arrive wherever it may: with each epoch that
// was ever placed, at both cells. The fence stands between.
func (md *model) writes(w world, yield func(world, label, bool)) {
	n := bits.OnesCount8(w.accepted)
	if n == md.bounds.writes {
		return
	}
	for c := range w.cells {
		l := w.cells[c].live
		open := l.state == tenant.Active || md.wrong.writeWhileFrozen && l.state == tenant.Frozen
		if open && w.routes&(1<<l.epoch) != 0 {
			to := w
			to.cells[c].live.content |= 1 << n
			to.accepted |= 1 << n
			yield(to, label{opWrite, 0, uint8(c)}, true)
		}
	}
}
