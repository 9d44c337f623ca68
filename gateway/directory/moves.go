package directory

import (
	"context"

	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// NewMove is what PlanMove makes a move of.
type NewMove struct {
	UID    tenant.UID
	To     tenant.CellName
	Reason string
	AtOnce int // a cell takes part in at most so many moves
}

// PlanMove begins the move of a tenant to another cell; by operators. It takes the
// tenant's next epoch. Whoever leads the directory carries it out.
func (d *Directory) PlanMove(ctx context.Context, by Actor, key *raftfsm.Key, in NewMove) (moves.Move, bool, error) {
	if !tenant.ValidID(string(in.To)) {
		return moves.Move{}, false, invalid("to", "must be a letter and up to 31 letters, digits or hyphens")
	}
	id, err := tenant.NewMoveID(d.cfg.Random)
	if err != nil {
		return moves.Move{}, false, err
	}
	return d.planned(ctx, by, key, in.UID, dirfsm.NumPlanMove, dirfsm.PlanMove{Move: id, UID: in.UID, To: in.To, Reason: in.Reason, AtOnce: int64(in.AtOnce)})
}

// PlanRollback begins the way back of a move whose destination has not been written
// to; by operators. The result is the rollback's own record.
func (d *Directory) PlanRollback(ctx context.Context, by Actor, key *raftfsm.Key, of tenant.MoveID, reason string) (moves.Move, bool, error) {
	m, err := d.Move(ctx, of)
	if err != nil {
		return moves.Move{}, false, err
	}
	id, err := tenant.NewMoveID(d.cfg.Random)
	if err != nil {
		return moves.Move{}, false, err
	}
	return d.planned(ctx, by, key, m.UID, dirfsm.NumPlanRollback, dirfsm.PlanRollback{Move: id, Of: of, Reason: reason})
}

// planned answers a replay with the move as it is now.
func (d *Directory) planned(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, n raftfsm.Number, body any) (moves.Move, bool, error) {
	m, replayed, err := propose[moves.Move](ctx, d, by, key, uid, n, body)
	if err == nil && replayed {
		m, err = d.Move(ctx, m.ID)
	}
	return m, replayed, err
}

// AskMove logs what an operator asks of a move: to give it up, to accept a finding
// or to close the rollback window.
func (d *Directory) AskMove(ctx context.Context, by Actor, key *raftfsm.Key, id tenant.MoveID, what moves.What, reason string) (moves.Move, bool, error) {
	m, err := d.Move(ctx, id)
	if err != nil {
		return moves.Move{}, false, err
	}
	return d.planned(ctx, by, key, m.UID, dirfsm.NumMoveEvent,
		dirfsm.MoveEvent{Event: moves.Event{Move: id, Epoch: m.EpochTo, What: what, Reason: reason}})
}

// TellMove logs what this gateway has learned as the executor of a move, and returns
// the record as it is then. Claim the move first, for the term of Leads.
func (d *Directory) TellMove(ctx context.Context, e moves.Event) (moves.Move, error) {
	if e.Term == 0 {
		return moves.Move{}, invalid("term", "must be that of the directory's leader")
	}
	m, _, err := propose[moves.Move](ctx, d, d.self(), nil, "", dirfsm.NumMoveEvent, dirfsm.MoveEvent{Event: e})
	return m, err
}

// Leads reports whether this gateway leads the directory, and in which term: the
// executor of moves is the leader, and claims them for its term.
func (d *Directory) Leads() (term uint64, leads bool) { return d.observe() }

// Move returns the record of a move, or fault.Unknown().
func (d *Directory) Move(ctx context.Context, id tenant.MoveID) (moves.Move, error) {
	found, err := d.movesWhere(ctx, "move_id = ?", string(id))
	if err == nil && len(found) == 0 {
		err = fault.Unknown()
	}
	if err != nil {
		return moves.Move{}, err
	}
	return found[0], nil
}

// OpenMoves lists the moves that are not over, the oldest first, at most 1,000.
func (d *Directory) OpenMoves(ctx context.Context) ([]moves.Move, error) {
	return d.movesWhere(ctx, "open = 1 ORDER BY planned_at, move_id LIMIT 1000")
}

// LeftCopies lists the moves whose retired copy is kept or being dropped, those that
// changed longest ago first, at most 1,000.
func (d *Directory) LeftCopies(ctx context.Context) ([]moves.Move, error) {
	return d.movesWhere(ctx, "copy IN ('kept', 'dropping') ORDER BY changed_at, move_id LIMIT 1000")
}

// MovesOf lists the moves of a tenant, the newest first; limit is 1 to 1,000.
func (d *Directory) MovesOf(ctx context.Context, uid tenant.UID, limit int) ([]moves.Move, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	return d.movesWhere(ctx, "uid = ? ORDER BY epoch_to DESC LIMIT ?", string(uid), limit)
}

// Moves lists all moves by id, from after on; limit is 1 to 1,000.
func (d *Directory) Moves(ctx context.Context, after tenant.MoveID, limit int) ([]moves.Move, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	return d.movesWhere(ctx, "move_id > ? ORDER BY move_id LIMIT ?", string(after), limit)
}

func (d *Directory) movesWhere(ctx context.Context, where string, args ...any) ([]moves.Move, error) {
	var out []moves.Move
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query("SELECT record FROM move WHERE "+where, func(r *store.Row) error {
			m, err := moves.Decode(store.Bytes(r, 0))
			if err != nil {
				return fault.New(fault.Internal, "internal", "a record of a move can't be read").Because(err)
			}
			out = append(out, m)
			return nil
		}, args...)
	})
	return out, err
}
