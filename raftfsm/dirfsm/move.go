package dirfsm

import (
	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// PlanMove begins a move of a tenant to another cell: it takes the tenant's next
// epoch and a place in the destination. The result is the move's record.
type PlanMove struct {
	_      struct{} `cbor:",toarray"`
	Move   tenant.MoveID
	UID    tenant.UID
	To     tenant.CellName
	Reason string
	AtOnce int64 // a cell takes part in at most so many moves
}

// PlanRollback begins the way back of a move whose destination has not been written
// to. The result is the rollback's record.
type PlanRollback struct {
	_      struct{}      `cbor:",toarray"`
	Move   tenant.MoveID // the rollback's own
	Of     tenant.MoveID // the move that is undone
	Reason string
}

// MoveEvent is what an executor has learned or an operator asks for. The result is
// the record as it is then. One that decides changes the placement in the same
// entry.
type MoveEvent struct {
	_     struct{} `cbor:",toarray"`
	Event moves.Event
}

// MaxMovesAtOnce bounds what PlanMove may ask for.
const MaxMovesAtOnce = 100

// entryOf is where a command stands, to package moves.
func entryOf(tx *store.Tx, c *raftfsm.Command) moves.Entry {
	return moves.Entry{Index: tx.Index, At: tx.Now, Actor: c.Actor, Operator: isOperator(c)}
}

func (h handlers) planMove(tx *store.Tx, c *raftfsm.Command, b PlanMove) (moves.Move, error) {
	none := moves.Move{}
	if err := needOperator(c); err != nil {
		return none, err
	}
	if b.AtOnce < 1 || b.AtOnce > MaxMovesAtOnce {
		return none, fault.New(fault.Invalid, "invalid-move", "a cell takes part in 1 to %d moves at once", MaxMovesAtOnce)
	}
	t, err := loadMoving(tx, b.UID)
	if err != nil {
		return none, err
	}
	if t.state != tenant.Placed {
		return none, fault.New(fault.Conflict, "tenant-busy", "the tenant is %s; wait until it is active", t.state)
	}
	from, err := loadEnd(tx, t.cell)
	if err != nil {
		return none, err
	}
	to, err := loadEnd(tx, b.To)
	if err != nil {
		return none, err
	}
	if err := mayReceive(t, to); err != nil {
		return none, err
	}
	for _, cell := range []tenant.CellName{from.Cell, to.Cell} {
		if err := belowMoveLimit(tx, cell, b.AtOnce); err != nil {
			return none, err
		}
	}
	if err := unknownMove(tx, b.Move); err != nil {
		return none, err
	}
	m, err := moves.Plan(moves.Order{ID: b.Move, Tenant: t.id, UID: t.uid, From: from.End, To: to.End,
		EpochFrom: t.epoch, EpochTo: t.last + 1, Reason: b.Reason}, entryOf(tx, c))
	if err != nil {
		return none, err
	}
	if err := closeWindows(tx, c, m); err != nil {
		return none, err
	}
	return m, h.begin(tx, c, m, "plan-move")
}

func (h handlers) planRollback(tx *store.Tx, c *raftfsm.Command, b PlanRollback) (moves.Move, error) {
	none := moves.Move{}
	if err := needOperator(c); err != nil {
		return none, err
	}
	of, err := loadMove(tx, b.Of)
	if err != nil {
		return none, err
	}
	t, err := loadMoving(tx, of.UID)
	if err != nil {
		return none, err
	}
	others, err := count(tx, "SELECT count(*) FROM move WHERE uid = ? AND open = 1 AND move_id <> ?", string(of.UID), string(of.ID))
	if err != nil {
		return none, err
	}
	if others > 0 || of.State.Over() && t.state != tenant.Placed {
		return none, fault.New(fault.Conflict, "tenant-busy", "the tenant takes part in another move; wait until it is over")
	}
	if err := unknownMove(tx, b.Move); err != nil {
		return none, err
	}
	m, undone, err := moves.PlanRollback(of, b.Move, t.epoch, t.last+1, b.Reason, entryOf(tx, c))
	if err != nil {
		return none, err
	}
	if err := saveMove(tx, undone); err != nil {
		return none, err
	}
	return m, h.begin(tx, c, m, "plan-rollback")
}

// begin stores a planned move with what it takes: an epoch, which is never given
// back, and a place in the destination.
func (h handlers) begin(tx *store.Tx, c *raftfsm.Command, m moves.Move, action string) error {
	if err := saveMove(tx, m); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE tenant SET last_epoch = ?, state = 'moving', changed_at = ? WHERE uid = ?", uint64(m.EpochTo), tx.Now, string(m.UID)); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE cell SET tenants = tenants + 1 WHERE name = ?", string(m.To.Cell)); err != nil {
		return err
	}
	if err := audit(tx, c, event{action, m.Tenant, m.UID, string(m.ID), string(m.From.Cell) + " to " + string(m.To.Cell) + ": " + m.Reason}); err != nil {
		return err
	}
	h.touch(tx)
	return nil
}

func (h handlers) moveEvent(tx *store.Tx, c *raftfsm.Command, b MoveEvent) (moves.Move, error) {
	none := moves.Move{}
	if !isOperator(c) && !isGateway(c) {
		return none, errForbidden
	}
	was, err := loadMove(tx, b.Event.Move)
	if err != nil {
		return none, err
	}
	m, err := moves.Step(was, b.Event, entryOf(tx, c))
	if err != nil || m == was {
		return m, err
	}
	if err := saveMove(tx, m); err != nil {
		return none, err
	}
	if err := undone(tx, m); err != nil {
		return none, err
	}
	placed, err := follow(tx, was, m)
	if err != nil {
		return none, err
	}
	if b.Event.What != moves.Shipped {
		if err := audit(tx, c, event{"move-" + b.Event.What.String(), m.Tenant, m.UID, string(m.ID), because(m.State.String(), b.Event.Reason)}); err != nil {
			return none, err
		}
	}
	if placed {
		h.touch(tx)
	}
	return m, nil
}

// undone keeps the record of the move that m is the rollback of.
func undone(tx *store.Tx, m moves.Move) error {
	if m.Kind != moves.Rollback {
		return nil
	}
	of, err := loadMove(tx, m.Of)
	if err != nil || of.Undo != m.ID {
		return err // the rollback is over, and the move went its way
	}
	next, err := moves.Undone(of, m)
	if err != nil || next == of {
		return err
	}
	return saveMove(tx, next)
}

// follow changes the placement as a move decides or ends, and reports whether it
// has.
func follow(tx *store.Tx, was, m moves.Move) (placed bool, err error) {
	if m.Decision.Index != 0 && was.Decision.Index == 0 {
		left := m.To.Cell // who has one tenant less than was counted
		if m.Decision.Commit {
			left, placed = m.From.Cell, true
			owner, epoch := m.Owner()
			n, err := tx.Exec("UPDATE tenant SET cell = ?, epoch = ?, changed_at = ? WHERE uid = ? AND epoch = ? AND cell = ?",
				string(owner.Cell), uint64(epoch), tx.Now, string(m.UID), uint64(m.EpochFrom), string(m.From.Cell))
			if err != nil {
				return false, err
			}
			if n != 1 {
				return false, fault.New(fault.Conflict, "placement-changed", "the tenant is no longer placed where move %s began", m.ID)
			}
		}
		if _, err := tx.Exec("UPDATE cell SET tenants = tenants - 1 WHERE name = ?", string(left)); err != nil {
			return false, err
		}
	}
	if !m.State.Over() || was.State.Over() {
		return placed, nil
	}
	open, err := count(tx, "SELECT count(*) FROM move WHERE uid = ? AND open = 1", string(m.UID))
	if err != nil || open > 0 {
		return placed, err
	}
	_, err = tx.Exec("UPDATE tenant SET state = 'active', changed_at = ? WHERE uid = ?", tx.Now, string(m.UID))
	return true, err
}

// closeWindows ends the rollback windows of the copies that earlier moves of the
// tenant left where it is about to arrive.
func closeWindows(tx *store.Tx, c *raftfsm.Command, m moves.Move) error {
	var kept []moves.Move
	err := tx.Query("SELECT record FROM move WHERE uid = ? AND source = ? AND copy = 'kept' ORDER BY epoch_to", func(r *store.Row) error {
		old, err := decodeMove(r, 0)
		kept = append(kept, old)
		return err
	}, string(m.UID), string(m.To.Cell))
	if err != nil {
		return err
	}
	for _, old := range kept {
		closed, err := moves.Step(old, moves.Event{Move: old.ID, Epoch: old.EpochTo, What: moves.ClosesWindow, Reason: "the tenant arrives again by move " + string(m.ID)}, entryOf(tx, c))
		if err != nil {
			return err
		}
		if err := saveMove(tx, closed); err != nil {
			return err
		}
	}
	return nil
}
