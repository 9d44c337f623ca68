package directory

import (
	"testing"
	"time"

	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/store/tenant"
)

// fifth puts the cell C5 beside C2.
func (c *cluster) fifth(at *Directory) {
	c.t.Helper()
	_, err := at.PutCell(c.context(), root, nil, Cell{Name: "C5", Key: "k5", Region: "eu", Nodes: map[string]string{"n1": "127.0.0.1:2"}})
	must(c.t, err)
}

// drive has the leader tell everything up to a state, as if cells had answered.
func (c *cluster) drive(at *Directory, m moves.Move, until moves.State) moves.Move {
	c.t.Helper()
	term, _ := at.Leads()
	same := moves.Proof{Source: moves.Digest{1}, Staged: moves.Digest{1}}
	all := same
	all.State, all.Epoch, all.W, all.Durable, all.Voters = tenant.Frozen, m.EpochFrom, moves.Watermark{Index: 9, Sequence: 5}, 2, 3
	for _, e := range []moves.Event{{What: moves.Claims}, {What: moves.Imported}, {What: moves.Copied}, {What: moves.CaughtUp, Proof: same},
		{What: moves.Froze, At: moves.Watermark{Index: 9, Sequence: 5}}, {What: moves.Proved, Proof: all},
		{What: moves.Activated, At: moves.Watermark{Index: 4, Sequence: 6}}, {What: moves.Retired}, {What: moves.Compared, Proof: same}} {
		if m.State == until {
			break
		}
		e.Move, e.Epoch, e.Term, e.Attempt = m.ID, m.EpochTo, term, m.Attempt
		var err error
		m, err = at.TellMove(c.context(), e)
		must(c.t, err)
	}
	if m.State != until {
		c.t.Fatalf("%v, not %v", m, until)
	}
	return m
}

func TestACommittedMoveIsEverywhereWhenItIsAnswered(t *testing.T) {
	c := newCluster(t, "G1", "G2", "G3").startAll()
	leader, _ := c.leader()
	d := c.up[leader].Directory
	c.people(d, "U1")
	c.fifth(d)
	p := c.tenant(d, "T7", "U1")
	m, _, err := d.PlanMove(c.context(), root, nil, NewMove{UID: p.UID, To: "C5", Reason: "closer", AtOnce: 1})
	must(t, err)
	where := func(cell tenant.CellName, epoch tenant.Epoch, state tenant.PlacementState) {
		t.Helper()
		for name := range c.up {
			a, err := c.up[name].Access("U1", "T7")
			must(t, err)
			if a.Placement.Cell != cell || a.Placement.Epoch != epoch || a.Placement.State != state {
				t.Errorf("%s sends to %s at epoch %d (%s)", name, a.Placement.Cell, a.Placement.Epoch, a.Placement.State)
			}
		}
	}
	c.await("G1", "G2", "G3")
	where("C2", p.Epoch, tenant.Moving)
	m = c.drive(d, m, moves.Committed)
	where("C5", m.EpochTo, tenant.Moving)
	c.drive(d, m, moves.Complete)
	where("C5", m.EpochTo, tenant.Placed)
	for name := range c.up {
		got, err := c.up[name].Move(c.context(), m.ID)
		if err != nil || got.State != moves.Complete {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestMovesAreListedAskedAndPruned(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d, ctx := c.up["G1"].Directory, c.context()
	c.people(d, "U1")
	c.fifth(d)
	p := c.tenant(d, "T7", "U1")
	_, _, err := d.PlanMove(ctx, ByUser("U1"), nil, NewMove{UID: p.UID, To: "C5", Reason: "closer", AtOnce: 1})
	wantSlug(t, err, "forbidden")
	_, _, err = d.PlanMove(ctx, root, nil, NewMove{UID: p.UID, To: "no cell", Reason: "closer", AtOnce: 1})
	wantSlug(t, err, "invalid-field")
	_, err = d.Move(ctx, "nonsense")
	wantSlug(t, err, "not-found")

	// A plan under a client's key is one move, told as it is now.
	key := &raftfsm.Key{Operation: "plan-move", Key: "k"}
	first, replayed, err := d.PlanMove(ctx, root, key, NewMove{UID: p.UID, To: "C5", Reason: "closer", AtOnce: 1})
	must(t, err)
	first = c.drive(d, first, moves.Frozen)
	again, replayedNow, err := d.PlanMove(ctx, root, key, NewMove{UID: p.UID, To: "C5", Reason: "closer", AtOnce: 1})
	if err != nil || replayed || !replayedNow || again != first {
		t.Fatalf("%v %v %v, want %v", again, replayedNow, err, first)
	}
	open, err := d.OpenMoves(ctx)
	if err != nil || len(open) != 1 || open[0] != first {
		t.Fatal(open, err)
	}

	// An operator aborts; nobody tells anything without a term.
	_, err = d.TellMove(ctx, moves.Event{Move: first.ID, Epoch: first.EpochTo, What: moves.GivesUp, Reason: "x"})
	wantSlug(t, err, "invalid-field")
	_, _, err = d.AskMove(ctx, root, nil, first.ID, moves.GivesUp, "changed my mind")
	must(t, err)
	term, leads := d.Leads()
	if !leads {
		t.Fatal("the only gateway does not lead")
	}
	for _, what := range []moves.What{moves.SourceForgot, moves.DestinationForgot} {
		first, err = d.TellMove(ctx, moves.Event{Move: first.ID, Epoch: first.EpochTo, Term: term, What: what})
		must(t, err)
	}
	second, _, err := d.PlanMove(ctx, root, nil, NewMove{UID: p.UID, To: "C5", Reason: "closer", AtOnce: 1})
	must(t, err)
	second = c.drive(d, second, moves.Complete)
	of, err := d.MovesOf(ctx, p.UID, 10)
	if err != nil || len(of) != 2 || of[0] != second || of[1] != first {
		t.Fatal(of, err)
	}
	all, err := d.Moves(ctx, "", 1)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	rest, err := d.Moves(ctx, all[0].ID, 10)
	if err != nil || len(rest) != 1 || rest[0].ID <= all[0].ID {
		t.Fatal(rest, err)
	}
	left, err := d.LeftCopies(ctx)
	if err != nil || len(left) != 1 || left[0] != second {
		t.Fatal(left, err)
	}
	rollback, _, err := d.PlanRollback(ctx, root, nil, second.ID, "slower")
	if err != nil || rollback.Of != second.ID || rollback.EpochTo != second.EpochTo+1 {
		t.Fatal(rollback, err)
	}

	// Only what is over and has left nothing goes, and only after its time.
	must(t, d.prune(ctx))
	if of, err := d.MovesOf(ctx, p.UID, 10); err != nil || len(of) != 3 {
		t.Fatal(of, err)
	}
	c.clock.advance(keepMoves + time.Hour)
	must(t, d.prune(ctx))
	if of, err := d.MovesOf(ctx, p.UID, 10); err != nil || len(of) != 2 || of[0].ID != rollback.ID {
		t.Fatal(of, err)
	}
}
