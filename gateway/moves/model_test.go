package moves_test

import (
	"fmt"
	"math/bits"

	"celld/gateway/moves"
	"celld/store/tenant"
)

// The model: one tenant, two cells, the directory's log, and whatever the network
// and crashes may do to an executor. The directory's part is the product's own
// transition function; the cells follow the rules of their logged commands.
//
// What keeps it small without leaving anything out:
//   - A command to a cell is on its way as soon as the record tells to send it, and
//     for ever: it arrives late, often, in any order, or never. So the executor has
//     no state but what it saw of the staged copy (world.saw), and crashes are
//     everywhere.
//   - An answer whose truth does not pass (the cell's log has it) can be learned at
//     any later time, so that its delay needs no state either.
//   - A write may arrive at any cell with any epoch that was ever placed: that is
//     every stale route at once.

const (
	mostMoves = 3
	cellC2    = 0
	cellC5    = 1
)

// bounds limit a search. Faults beyond them are not tried.
type bounds struct {
	moves, writes, faults int
}

// mistakes are rules that are broken on purpose, one at a time.
type mistakes struct {
	wBeforeDrain         bool // W is the position of the last round, not of the freeze
	thawByTimer          bool
	commitBeforeDurable  bool // the executor counts replicas that have not synced
	epochReused          bool // the placement's epoch plus one, after an abort too
	activateWithoutToken bool
	laggingSource        bool // pages and control row come from a replica that lags
	copyAfterFreeze      bool // a break after the freeze starts a second copy, unlogged
	abortForgotten       bool // a cell that does not know the move writes no terminal record
	dropUnlogged         bool // a drop is sent while the window is open
	rollbackUnasked      bool // the rollback's freeze does not look at the sequence
	abortAfterCommit     bool // the second decision counts
	freezeByNameOnly     bool // the freeze looks at neither epoch nor terminal record
	writeWhileFrozen     bool // the fence looks at the epoch alone
}

// incarnation is the tenant's file in one cell.
type incarnation struct {
	state   tenant.State // 0 is none
	epoch   uint8
	by      uint8 // the move that froze or retired it, from 1
	content uint8 // the writes that it holds
}

// staging is a copy that is being made.
type staging struct {
	by      uint8 // the move, from 1; 0 is none
	attempt uint8
	content uint8
	frozen  bool // its control row shows the freeze
	durable bool // on a majority
}

const (
	endedAborted = iota + 1
	endedCommitted
)

type cell struct {
	live  incarnation
	stage staging
	ended [mostMoves]uint8 // terminal records
}

// What the executor of now has seen of a staged copy and not yet told.
const (
	sawCopied = 1 << iota
	sawCaughtUp
	sawProved
)

// world is one state. It is comparable.
type world struct {
	recs     [mostMoves]uint16 // numbers of interned records; 0 is none
	cells    [2]cell
	placed   uint8 // cell
	epoch    uint8 // of the placement
	last     uint8 // the highest epoch given out
	routes   uint16
	accepted uint8
	sent     [mostMoves]uint16
	saw      [mostMoves]uint8
	broken   [mostMoves]bool
	early    [mostMoves]uint8 // only for wBeforeDrain
	faults   uint8            // left to happen: claims, breaks, losses, findings, closed windows; aborts are free
}

// model is the rules, and the records that were met.
type model struct {
	bounds   bounds
	wrong    mistakes
	recs     []moves.Move
	numbers  map[moves.Move]uint16
	memo     map[memoKey]uint16
	failures []string // of the transition function
}

type memoKey struct {
	rec uint16
	e   moves.Event
}

func newModel(b bounds, wrong mistakes) *model {
	return &model{bounds: b, wrong: wrong, recs: make([]moves.Move, 1), numbers: map[moves.Move]uint16{}, memo: map[memoKey]uint16{}}
}

func (md *model) start() world {
	w := world{placed: cellC2, epoch: 1, last: 1, routes: 1 << 1, faults: uint8(md.bounds.faults)}
	w.cells[cellC2].live = incarnation{state: tenant.Active, epoch: 1}
	return w
}

func (md *model) number(m moves.Move) uint16 {
	n, ok := md.numbers[m]
	if !ok {
		n = uint16(len(md.recs))
		md.recs, md.numbers[m] = append(md.recs, m), n
		md.hostile(m)
	}
	return n
}

func (md *model) rec(w *world, i int) moves.Move { return md.recs[w.recs[i]] }

func moveID(i int) tenant.MoveID {
	return tenant.MoveID("aaaaaaaaaaaaaaaaaaaaaaaaa" + string(rune('b'+i)))
}

func end(c int) moves.End {
	return []moves.End{{Cell: "C2", Key: "key-2"}, {Cell: "C5", Key: "key-5"}}[c]
}

func cellOf(e moves.End) int {
	if e.Cell == "C2" {
		return cellC2
	}
	return cellC5
}

var (
	pages = moves.Digest{1}
	entry = moves.Entry{Index: 7, Actor: "gateway:G1"}
	byOp  = moves.Entry{Index: 7, Actor: "operator:root", Operator: true}
)

// mark is where a log stands that holds the given writes, in the given cell.
func mark(c int, content uint8) moves.Watermark {
	seq := uint64(bits.OnesCount8(content)) + 1
	return moves.Watermark{Index: 100*uint64(c) + 10 + seq, Sequence: seq}
}

// step is the directory's apply: the real transition function, remembered.
func (md *model) step(n uint16, e moves.Event) uint16 {
	key := memoKey{n, e}
	if to, ok := md.memo[key]; ok {
		return to
	}
	at := entry
	if e.Term == 0 {
		at = byOp
	}
	m := md.recs[n]
	next, err := moves.Step(m, e, at)
	if err != nil && next != m {
		md.failures = append(md.failures, fmt.Sprintf("a refusal changed %v: %v", m, err))
	}
	if md.wrong.abortAfterCommit && e.What == moves.GivesUp && m.State.Committed() && m.State < moves.Complete {
		next = m
		next.State, next.Decision.Commit = moves.Aborting, false
	}
	to := md.number(next)
	md.memo[key] = to
	return to
}

// event applies e to the record of move i, with all that stands in the same entry.
func (md *model) event(w world, i int, e moves.Event) (world, bool) {
	m := md.rec(&w, i)
	e.Move, e.Epoch = m.ID, m.EpochTo
	to := md.step(w.recs[i], e)
	if to == w.recs[i] {
		return w, false
	}
	w.recs[i] = to
	next := md.recs[to]
	decided := next.Decision.Index != 0 // what was seen of the copy is refused from now on
	if next.Attempt != m.Attempt || next.Term != m.Term || decided {
		w.saw[i] = 0
	}
	if next.Attempt != m.Attempt {
		w.broken[i] = false
	}
	if next.State.Committed() != m.State.Committed() {
		owner, epoch := next.Owner()
		w.placed, w.epoch = uint8(cellOf(owner)), uint8(epoch)
		w.routes |= 1 << epoch
	}
	if next.Kind == moves.Rollback {
		of, err := moves.Undone(md.rec(&w, i-1), next)
		if err != nil {
			md.failures = append(md.failures, err.Error())
		}
		w.recs[i-1] = md.number(of)
	}
	return md.send(w), true
}

// send puts on the network what the records tell to do.
func (md *model) send(w world) world {
	for i := range md.bounds.moves {
		if w.recs[i] == 0 {
			continue
		}
		m := md.rec(&w, i)
		if m.Term == 0 {
			continue // nobody drives it yet
		}
		for _, do := range m.Next() {
			w.sent[i] |= 1 << do
		}
		if md.wrong.activateWithoutToken && m.State == moves.Frozen {
			w.sent[i] |= 1 << moves.Activate
		}
		if md.wrong.dropUnlogged && m.Copy == moves.Kept {
			w.sent[i] |= 1 << moves.Drop
		}
	}
	return w
}

// deliver applies a command of move i at its cell. A refusal changes nothing.
func (md *model) deliver(w world, i int, do moves.Do) (world, bool) {
	m, by := md.rec(&w, i), uint8(i+1)
	from, to := &w.cells[cellOf(m.From)], &w.cells[cellOf(m.To)]
	before := w
	switch do {
	case moves.Import:
		if to.ended[i] == 0 && to.stage.by == 0 && to.live.state != tenant.Active && to.live.state != tenant.Frozen && uint8(m.EpochTo) > to.live.epoch {
			to.stage = staging{by: by}
		}
	case moves.Freeze:
		known := from.ended[i] == 0 && from.live.epoch == uint8(m.EpochFrom)
		unwritten := m.Kind != moves.Rollback || mark(0, from.live.content).Sequence == m.Unwritten || md.wrong.rollbackUnasked
		if from.live.state == tenant.Active && (known || md.wrong.freezeByNameOnly) && unwritten {
			from.live.state, from.live.by = tenant.Frozen, by
		}
	case moves.Activate:
		md.activate(&w, i, m)
	case moves.Retire:
		if from.live.state == tenant.Frozen && from.live.by == by {
			from.live.state, from.ended[i] = tenant.Retired, endedCommitted
		}
	case moves.ForgetSource:
		frozen := from.live.state == tenant.Frozen && from.live.by == by
		if from.ended[i] == 0 && (frozen || !md.wrong.abortForgotten) {
			from.ended[i] = endedAborted
		}
		if frozen {
			from.live.state, from.live.by = tenant.Active, 0
		}
	case moves.ForgetDestination:
		staged := to.stage.by == by
		if to.ended[i] == 0 && (staged || !md.wrong.abortForgotten) {
			to.ended[i] = endedAborted
		}
		if staged {
			to.stage = staging{}
		}
	case moves.Drop:
		if from.live.state == tenant.Retired && from.live.by == by {
			from.live = incarnation{epoch: from.live.epoch}
		}
	}
	return w, w != before
}

// activate makes the staged copy, or for a rollback the retired one, the tenant.
// The command carries W; the staged control row must show it.
func (md *model) activate(w *world, i int, m moves.Move) {
	to, by := &w.cells[cellOf(m.To)], uint8(i+1)
	if to.ended[i] != 0 || to.live.state == tenant.Active || to.live.state == tenant.Frozen {
		return
	}
	if m.Kind == moves.Rollback {
		if to.live.state == tenant.Retired && to.live.by == by-1 && mark(cellOf(m.To), to.live.content) == m.CopyW {
			to.live = incarnation{state: tenant.Active, epoch: uint8(m.EpochTo), content: to.live.content}
			to.ended[i] = endedCommitted
		}
		return
	}
	if s := to.stage; s.by == by && (s.frozen || md.wrong.wBeforeDrain) && mark(cellOf(m.From), s.content) == m.W && uint8(m.EpochTo) > to.live.epoch {
		to.live = incarnation{state: tenant.Active, epoch: uint8(m.EpochTo), content: s.content}
		to.stage, to.ended[i] = staging{}, endedCommitted
	}
}

// answer is the event that the executor learns from a command, if the cell's state
// shows that it had its effect.
func (md *model) answer(w *world, i int, do moves.Do) (moves.Event, bool) {
	m, by := md.rec(w, i), uint8(i+1)
	from, to := w.cells[cellOf(m.From)], w.cells[cellOf(m.To)]
	e := moves.Event{Term: m.Term}
	switch do {
	case moves.Import:
		e.What = moves.Imported
		return e, to.stage.by == by
	case moves.FindCopy:
		e.What = moves.CopyThere
		return md.oldCopy(w, i, e)
	case moves.Freeze:
		e.What, e.At = moves.Froze, mark(cellOf(m.From), from.live.content)
		if md.wrong.wBeforeDrain && m.Kind == moves.Transfer {
			e.At = mark(cellOf(m.From), w.early[i])
		}
		return e, from.live.state == tenant.Frozen && from.live.by == by
	case moves.Activate:
		e.What, e.At = moves.Activated, mark(cellOf(m.To), 0)
		e.At.Sequence = max(m.W.Sequence, m.CopyW.Sequence)
		return e, to.ended[i] == endedCommitted
	case moves.Retire:
		e.What = moves.Retired
		return e, from.ended[i] == endedCommitted
	case moves.Compare:
		e.What, e.Proof = moves.Compared, moves.Proof{Source: pages, Staged: pages}
		return e, true
	case moves.ForgetSource:
		e.What = moves.SourceForgot
		return e, from.ended[i] == endedAborted || md.wrong.abortForgotten && !(from.live.state == tenant.Frozen && from.live.by == by)
	case moves.ForgetDestination:
		e.What = moves.DestinationForgot
		return e, to.ended[i] == endedAborted || md.wrong.abortForgotten && to.stage.by != by
	case moves.Drop:
		e.What = moves.Drops
		return e, from.live.state != tenant.Retired || from.live.by != by
	}
	return e, false
}

// oldCopy completes a proof about the copy that a rollback would activate.
func (md *model) oldCopy(w *world, i int, e moves.Event) (moves.Event, bool) {
	m := md.rec(w, i)
	l := w.cells[cellOf(m.To)].live
	e.Proof = moves.Proof{State: l.state, Epoch: tenant.Epoch(l.epoch), W: mark(cellOf(m.To), l.content), Durable: 2, Voters: 3}
	return e, l.state == tenant.Retired && l.by == uint8(i)
}

// proof is what the executor finds on the staged copy when it looks now.
func (md *model) proof(w *world, i int) (moves.Event, bool) {
	m := md.rec(w, i)
	e := moves.Event{Term: m.Term, What: moves.Proved, Attempt: m.Attempt}
	if m.Kind == moves.Rollback {
		return md.oldCopy(w, i, e)
	}
	s := w.cells[cellOf(m.To)].stage
	shows := mark(cellOf(m.From), s.content) == m.W && s.frozen
	if md.wrong.laggingSource {
		shows = s.frozen // its own sequence, compared with its own
	}
	if md.wrong.wBeforeDrain {
		shows = mark(cellOf(m.From), s.content) == m.W
	}
	e.Proof = moves.Proof{State: tenant.Frozen, Epoch: m.EpochFrom, W: m.W, Source: pages, Staged: pages, Durable: 2, Voters: 3}
	return e, s.by == uint8(i+1) && uint32(s.attempt) == m.Attempt && shows && (s.durable || md.wrong.commitBeforeDurable)
}
