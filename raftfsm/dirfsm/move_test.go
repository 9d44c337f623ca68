package dirfsm_test

import (
	"testing"

	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/tenant"
)

func mid(n byte) tenant.MoveID {
	return tenant.MoveID("mmmmmmmmmmmmmmmmmmmmmmmmm" + string('a'+rune(n)))
}

// settled is a directory with the cells C2 and C5 and the active tenant T1 in C2.
func settled(t *testing.T) *directory {
	t.Helper()
	d := open(t)
	d.user("U1")
	d.cell("C2", "eu", 10)
	d.placed(0, "T1")
	d.cell("C5", "eu", 10)
	return d
}

func (d *directory) placed(n byte, id string) {
	d.t.Helper()
	d.do(op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: tenant.ID(id), UID: uid(n), Name: id, Owner: "U1", Tier: "pooled", Cell: "C2"})
	d.do(gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(n), Epoch: 1})
}

func planOf(move, who byte, to tenant.CellName) dirfsm.PlanMove {
	return dirfsm.PlanMove{Move: mid(move), UID: uid(who), To: to, Reason: "closer", AtOnce: 2}
}

func (d *directory) plan(p dirfsm.PlanMove) moves.Move {
	d.t.Helper()
	return into[moves.Move](d.t, d.do(op, dirfsm.NumPlanMove, p))
}

// tell logs an event of the executor that has claimed the move for term 1.
func (d *directory) tell(m moves.Move, e moves.Event) moves.Move {
	d.t.Helper()
	e.Move, e.Epoch, e.Term, e.Attempt = m.ID, m.EpochTo, 1, m.Attempt
	return into[moves.Move](d.t, d.do(gw, dirfsm.NumMoveEvent, dirfsm.MoveEvent{Event: e}))
}

func (d *directory) tellAll(m moves.Move, events ...moves.Event) moves.Move {
	d.t.Helper()
	for _, e := range events {
		m = d.tell(m, e)
	}
	return m
}

var digest = moves.Digest{1}

// toFrozen and toComplete are a transfer's way, in two parts.
func toFrozen() []moves.Event {
	return []moves.Event{{What: moves.Claims}, {What: moves.Imported}, {What: moves.Copied},
		{What: moves.CaughtUp, Proof: moves.Proof{Source: digest, Staged: digest}}, {What: moves.Froze, At: moves.Watermark{Index: 9, Sequence: 5}}}
}

func proved(m moves.Move) moves.Event {
	return moves.Event{What: moves.Proved, Proof: moves.Proof{State: tenant.Frozen, Epoch: m.EpochFrom, W: moves.Watermark{Index: 9, Sequence: 5},
		Source: digest, Staged: digest, Durable: 2, Voters: 3}}
}

func toRetired() []moves.Event {
	return []moves.Event{{What: moves.Activated, At: moves.Watermark{Index: 4, Sequence: 6}}, {What: moves.Retired}}
}

func compared() moves.Event {
	return moves.Event{What: moves.Compared, Proof: moves.Proof{Source: digest, Staged: digest}}
}

// is checks where a tenant is placed, and how many tenants the cells count.
func (d *directory) is(who byte, cell, state string, epoch, last, inC2, inC5 int64) {
	d.t.Helper()
	if n := d.number("SELECT count(*) FROM tenant WHERE uid = ? AND cell = ? AND state = ? AND epoch = ? AND last_epoch = ?", string(uid(who)), cell, state, epoch, last); n != 1 {
		d.t.Fatalf("tenant %d is not %s in %s at epoch %d with %d as its highest", who, state, cell, epoch, last)
	}
	c2, c5 := d.number("SELECT tenants FROM cell WHERE name = 'C2'"), d.number("SELECT tenants FROM cell WHERE name = 'C5'")
	if c2 != inC2 || c5 != inC5 {
		d.t.Fatalf("the cells count %d and %d tenants, not %d and %d", c2, c5, inC2, inC5)
	}
}

func TestAMoveThereAndBack(t *testing.T) {
	d := settled(t)
	m := d.plan(planOf(0, 0, "C5"))
	if m.EpochFrom != 1 || m.EpochTo != 2 || m.From.Key != "key-C2" || m.AskedBy != op || m.PlannedAt < start {
		t.Fatalf("%+v", m)
	}
	d.is(0, "C2", "moving", 1, 2, 1, 1)
	m = d.tellAll(m, toFrozen()...)
	d.is(0, "C2", "moving", 1, 2, 1, 1)
	mark := d.touched.Load()
	m = d.tell(m, proved(m))
	d.is(0, "C5", "moving", 2, 2, 0, 1)
	if d.touched.Load() == mark {
		t.Error("gateways go on with the old placement")
	}
	if !m.Decision.Commit || m.Decision.Index == 0 {
		t.Fatalf("the decision is %+v", m.Decision)
	}
	m = d.tellAll(m, toRetired()...)
	m = d.tell(m, compared())
	d.is(0, "C5", "active", 2, 2, 0, 1)

	// The way back ends the window of the copy at C2 in the entry that plans it.
	back := d.plan(planOf(1, 0, "C2"))
	if n := d.number("SELECT count(*) FROM move WHERE move_id = ? AND copy = 'dropping'", string(m.ID)); n != 1 {
		t.Error("the old copy's window is open while the tenant arrives")
	}
	back = d.tellAll(back, toFrozen()...)
	back = d.tell(back, proved(back))
	back = d.tellAll(back, toRetired()...)
	back = d.tell(back, compared())
	d.is(0, "C2", "active", 3, 3, 1, 0)
	if back.State != moves.Complete {
		t.Error(back)
	}
	if n := d.number("SELECT count(*) FROM audit WHERE tenant_id = 'T1' AND uid = ? AND subject IN (?, ?) AND action LIKE '%move%'", string(uid(0)), string(m.ID), string(back.ID)); n != 2*10 {
		t.Errorf("%d audit rows of two moves", n)
	}
}

func TestAnAbortBurnsTheEpoch(t *testing.T) {
	d := settled(t)
	m := d.plan(planOf(0, 0, "C5"))
	m = d.tellAll(m, toFrozen()...)
	abort := dirfsm.MoveEvent{Event: moves.Event{Move: m.ID, Epoch: m.EpochTo, What: moves.GivesUp, Reason: "changed my mind"}}
	d.refuse("forbidden", "U1", dirfsm.NumMoveEvent, abort)
	d.refuse("no-executor", gw, dirfsm.NumMoveEvent, abort)
	d.do(op, dirfsm.NumMoveEvent, abort)
	d.is(0, "C2", "moving", 1, 2, 1, 0)
	again := proved(m)
	again.Move, again.Epoch, again.Term, again.Attempt = m.ID, m.EpochTo, 1, m.Attempt
	d.refuse("aborted", gw, dirfsm.NumMoveEvent, dirfsm.MoveEvent{Event: again})
	d.refuse("tenant-busy", op, dirfsm.NumPlanMove, planOf(1, 0, "C5")) // until both cells have forgotten it
	d.tellAll(m, moves.Event{What: moves.SourceForgot}, moves.Event{What: moves.DestinationForgot})
	d.is(0, "C2", "active", 1, 2, 1, 0)
	if next := d.plan(planOf(1, 0, "C5")); next.EpochFrom != 1 || next.EpochTo != 3 {
		t.Errorf("the next move goes from epoch %d to %d", next.EpochFrom, next.EpochTo)
	}
}

func TestARollbackAndItsRefusal(t *testing.T) {
	d := settled(t)
	m := d.plan(planOf(0, 0, "C5"))
	rollback := dirfsm.PlanRollback{Move: mid(1), Of: m.ID, Reason: "slower"}
	d.refuse("not-rolled-back", op, dirfsm.NumPlanRollback, rollback)
	m = d.tellAll(m, toFrozen()...)
	m = d.tell(m, proved(m))
	m = d.tellAll(m, toRetired()...)
	d.refuse("forbidden", gw, dirfsm.NumPlanRollback, rollback)
	d.refuse("not-found", op, dirfsm.NumPlanRollback, dirfsm.PlanRollback{Move: mid(1), Of: mid(9), Reason: "slower"})
	d.refuse("move-exists", op, dirfsm.NumPlanRollback, dirfsm.PlanRollback{Move: m.ID, Of: m.ID, Reason: "slower"})

	// The first one finds that the tenant was written to, and is aborted.
	r := into[moves.Move](t, d.do(op, dirfsm.NumPlanRollback, rollback))
	d.is(0, "C5", "moving", 2, 3, 1, 1)
	d.refuse("tenant-busy", op, dirfsm.NumPlanRollback, dirfsm.PlanRollback{Move: mid(2), Of: m.ID, Reason: "slower"})
	waits := compared()
	waits.Move, waits.Epoch, waits.Term = m.ID, m.EpochTo, 1
	d.refuse("rollback-running", gw, dirfsm.NumMoveEvent, dirfsm.MoveEvent{Event: waits})
	d.tellAll(r, moves.Event{What: moves.Claims}, moves.Event{What: moves.GivesUp, Reason: "written to"}, moves.Event{What: moves.SourceForgot}, moves.Event{What: moves.DestinationForgot})
	d.is(0, "C5", "moving", 2, 3, 0, 1)

	// The move goes on to its end, and the second one is committed.
	d.tell(m, compared())
	d.is(0, "C5", "active", 2, 3, 0, 1)
	rollback.Move = mid(2)
	r = into[moves.Move](t, d.do(op, dirfsm.NumPlanRollback, rollback))
	old := moves.Proof{State: tenant.Retired, Epoch: 1, W: m.W, Durable: 2, Voters: 3}
	r = d.tellAll(r, moves.Event{What: moves.Claims}, moves.Event{What: moves.CopyThere, Proof: old}, moves.Event{What: moves.Froze, At: moves.Watermark{Index: 5, Sequence: 7}},
		moves.Event{What: moves.Proved, Proof: old})
	d.is(0, "C2", "moving", 4, 4, 1, 0)
	if n := d.number("SELECT count(*) FROM move WHERE move_id = ? AND state = 'rolled-back' AND open = 0", string(m.ID)); n != 1 {
		t.Error("the move does not say that it was rolled back")
	}
	r = d.tellAll(r, toRetired()...)
	r = d.tell(r, compared())
	d.is(0, "C2", "active", 4, 4, 1, 0)
	d.refuse("rollback-of-rollback", op, dirfsm.NumPlanRollback, dirfsm.PlanRollback{Move: mid(3), Of: r.ID, Reason: "slower"})
}

func TestPlansThatAreRefused(t *testing.T) {
	d := settled(t)
	d.placed(1, "T2")
	d.placed(2, "T3")
	d.placed(3, "T4")
	d.cell("US", "us", 10)
	d.cell("Full", "eu", 0)
	d.do(op, dirfsm.NumPutCell, dirfsm.PutCell{Name: "Own", Key: "key-own", Region: "eu", Tier: "dedicated", State: "active", Capacity: 1})
	d.do(op, dirfsm.NumPutCell, dirfsm.PutCell{Name: "Old", Key: "key-old", Region: "eu", Tier: "pooled", State: "draining", Capacity: 9})
	with := func(change func(*dirfsm.PlanMove)) dirfsm.PlanMove { p := planOf(0, 0, "C5"); change(&p); return p }
	d.refuse("forbidden", "U1", dirfsm.NumPlanMove, planOf(0, 0, "C5"))
	d.refuse("forbidden", gw, dirfsm.NumPlanMove, planOf(0, 0, "C5"))
	d.refuse("not-found", op, dirfsm.NumPlanMove, planOf(0, 9, "C5"))
	d.refuse("no-cell", op, dirfsm.NumPlanMove, planOf(0, 0, "C9"))
	d.refuse("same-cell", op, dirfsm.NumPlanMove, planOf(0, 0, "C2"))
	d.refuse("wrong-region", op, dirfsm.NumPlanMove, planOf(0, 0, "US"))
	d.refuse("wrong-tier", op, dirfsm.NumPlanMove, planOf(0, 0, "Own"))
	d.refuse("cell-draining", op, dirfsm.NumPlanMove, planOf(0, 0, "Old"))
	d.refuse("no-capacity", op, dirfsm.NumPlanMove, planOf(0, 0, "Full"))
	d.refuse("invalid-move", op, dirfsm.NumPlanMove, with(func(p *dirfsm.PlanMove) { p.Reason = "" }))
	d.refuse("invalid-move", op, dirfsm.NumPlanMove, with(func(p *dirfsm.PlanMove) { p.Move = "x" }))
	d.refuse("invalid-move", op, dirfsm.NumPlanMove, with(func(p *dirfsm.PlanMove) { p.AtOnce = 0 }))
	d.refuse("invalid-move", op, dirfsm.NumPlanMove, with(func(p *dirfsm.PlanMove) { p.AtOnce = dirfsm.MaxMovesAtOnce + 1 }))
	d.refuse("not-found", gw, dirfsm.NumMoveEvent, dirfsm.MoveEvent{Event: moves.Event{Move: mid(0), Epoch: 2, Term: 1, What: moves.Claims}})

	d.do(op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T5", UID: uid(4), Name: "n", Owner: "U1", Tier: "pooled", Cell: "C2"})
	d.refuse("tenant-busy", op, dirfsm.NumPlanMove, planOf(0, 4, "C5")) // its cell has not made its file
	d.plan(planOf(0, 0, "C5"))
	d.refuse("tenant-busy", op, dirfsm.NumPlanMove, planOf(1, 0, "C5"))
	d.refuse("move-exists", op, dirfsm.NumPlanMove, planOf(0, 1, "C5"))
	d.plan(planOf(1, 1, "C5"))
	d.refuse("move-limit", op, dirfsm.NumPlanMove, planOf(2, 2, "C5"))
	d.refuse("placement-changed", gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(0), Epoch: 1})
}

// A move's place in its destination is taken when it is planned: ten moves into one
// place are one move.
func TestAPlaceIsTakenOnce(t *testing.T) {
	d := settled(t)
	d.placed(1, "T2")
	d.cell("One", "eu", 1)
	d.plan(planOf(0, 0, "One"))
	d.refuse("no-capacity", op, dirfsm.NumPlanMove, planOf(1, 1, "One"))
	d.refuse("no-capacity", op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T9", UID: uid(9), Name: "n", Owner: "U1", Tier: "pooled", Cell: "One"})
}

// What is repeated is answered with the record, and leaves nothing.
func TestARepeatedEventLeavesNothing(t *testing.T) {
	d := settled(t)
	m := d.plan(planOf(0, 0, "C5"))
	m = d.tellAll(m, toFrozen()...)
	audited, mark := d.number("SELECT count(*) FROM audit"), d.touched.Load()
	if again := d.tell(m, toFrozen()[4]); again != m {
		t.Errorf("%+v became %+v", m, again)
	}
	if d.number("SELECT count(*) FROM audit") != audited || d.touched.Load() != mark {
		t.Error("a repetition was audited, or dropped what others remember")
	}
}

// The columns of a row repeat the record.
func TestRowsAgreeWithRecords(t *testing.T) {
	d := settled(t)
	m := d.plan(planOf(0, 0, "C5"))
	for _, e := range append(toFrozen(), proved(m)) {
		m = d.tell(m, e)
		_, err := d.space.View(func(c *store.Conn) error {
			_, err := c.One("SELECT state, copy, open, epoch_to, changed_at, record FROM move WHERE move_id = ?", func(r *store.Row) error {
				got, err := moves.Decode(store.Bytes(r, 5))
				if got != m || r.ColumnText(0) != m.State.String() || r.ColumnText(1) != m.Copy.String() || r.ColumnInt64(2) != 1 ||
					r.ColumnInt64(3) != int64(m.EpochTo) || r.ColumnInt64(4) != m.ChangedAt {
					t.Errorf("the row of %v says otherwise: %v", m, got)
				}
				return err
			}, string(m.ID))
			return err
		})
		must(t, err)
	}
}

// A plan that is proposed again under its key is one move.
func TestAPlanUnderAKeyIsOneMove(t *testing.T) {
	d := settled(t)
	key := &raftfsm.Key{Actor: op, Operation: "plan", Key: "k"}
	first, err := d.propose(op, key, dirfsm.NumPlanMove, planOf(0, 0, "C5"))
	must(t, err)
	again, err := d.propose(op, key, dirfsm.NumPlanMove, planOf(0, 0, "C5"))
	must(t, err)
	if into[moves.Move](t, first) != into[moves.Move](t, again) || !again.Replayed {
		t.Error("the repetition answers otherwise")
	}
	d.is(0, "C2", "moving", 1, 2, 1, 1)
}

func TestPastMovesArePruned(t *testing.T) {
	d := settled(t)
	d.placed(1, "T2")
	aborted, running := d.plan(planOf(0, 0, "C5")), d.plan(planOf(1, 1, "C5"))
	d.tellAll(aborted, moves.Event{What: moves.Claims}, moves.Event{What: moves.GivesUp, Reason: "test"}, moves.Event{What: moves.SourceForgot}, moves.Event{What: moves.DestinationForgot})
	kept := d.plan(planOf(2, 0, "C5"))
	kept = d.tellAll(kept, toFrozen()...)
	kept = d.tell(kept, proved(kept))
	kept = d.tellAll(kept, toRetired()...)
	kept = d.tell(kept, compared())
	left := func() int64 { return d.number("SELECT count(*) FROM move") }
	d.refuse("forbidden", op, dirfsm.NumPruneMoves, dirfsm.PruneMoves{Before: start + 1e6, Limit: 10})
	d.do(gw, dirfsm.NumPruneMoves, dirfsm.PruneMoves{Before: start, Limit: 10})
	if left() != 3 {
		t.Fatal("a move went before its time")
	}
	d.do(gw, dirfsm.NumPruneMoves, dirfsm.PruneMoves{Before: start + 1e12, Limit: 10})
	if left() != 2 || d.number("SELECT count(*) FROM move WHERE move_id IN (?, ?)", string(running.ID), string(kept.ID)) != 2 {
		t.Fatalf("%d moves are left; the one under way and the one whose copy is kept must be", left())
	}
	d.tell(kept, moves.Event{What: moves.ClosesWindow, Reason: "a day is over"})
	d.tell(kept, moves.Event{What: moves.Drops})
	if got := into[dirfsm.Pruned](t, d.do(gw, dirfsm.NumPruneMoves, dirfsm.PruneMoves{Before: start + 1e12, Limit: 1})); got.Deleted != 1 || !got.More || left() != 1 {
		t.Fatalf("%+v, %d left", got, left())
	}
}
