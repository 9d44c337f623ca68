package cellfsm

import (
	"fmt"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// outcome is how a move has ended in this cell. Names stand in cell.db.
type outcome string

const (
	retired   outcome = "retired"   // committed, at the source
	activated outcome = "activated" // committed, at the destination
	aborted   outcome = "aborted"
)

// ending is the terminal record of a move.
type ending struct {
	outcome outcome
	index   uint64 // the log entry that made it
}

func readEnding(c *store.Conn, move tenant.MoveID) (e ending, found bool, err error) {
	found, err = c.One("SELECT outcome, ended_index FROM ended_move WHERE move_id = ?", func(r *store.Row) error {
		e = ending{outcome(r.ColumnText(0)), uint64(r.ColumnInt64(1))}
		if e.outcome != retired && e.outcome != activated && e.outcome != aborted {
			return fmt.Errorf("move %s has ended as %q", move, e.outcome)
		}
		return nil
	}, string(move))
	return e, found, err
}

func (st *standing) endAs(tx *store.Tx, as outcome) error {
	return tx.Query("INSERT INTO ended_move (move_id, uid, outcome, planned_at, ended_index) VALUES (?, ?, ?, ?, ?)",
		nil, string(st.of.Move), string(st.of.UID), string(as), st.of.Planned, tx.Index)
}

func readSince(c *store.Conn) (since int64, err error) {
	_, err = c.One("SELECT moves_since FROM cell", func(r *store.Row) error { since = r.ColumnInt64(0); return nil })
	return since, err
}

// maxEnded bounds the terminal records: with so many no move begins, but each one
// that is under way can end.
const maxEnded = 10_000

func hasRoomForMoves(c *store.Conn) error {
	n := 0
	if _, err := c.One("SELECT count(*) FROM ended_move", func(r *store.Row) error { n = r.ColumnInt(0); return nil }); err != nil {
		return err
	}
	if n >= maxEnded {
		return fault.New(fault.Quota, "too-many-moves", "the cell remembers %d moves that are over; more begin when the oldest have been pruned", n)
	}
	return nil
}

// MovePrune is the body of MovePruneNumber: the cell forgets moves that are over and
// were planned before a time, the oldest first, at most Limit of them.
//
// It lets no late command in. A terminal record is there to refuse what would begin
// the move anew (MoveStart, MoveFreeze, MoveImport). From now on all of these are
// refused that belong to a move planned before the cutoff, whether or not it has a
// record; every other command needs a record that only these can make.
type MovePrune struct {
	Before int64 `cbor:"1,keyasint"` // unix microseconds, against MoveRef.Planned
	Limit  int   `cbor:"2,keyasint"`
}

// MovesPruned is the result of MovePruneNumber.
type MovesPruned struct {
	Moves int `cbor:"1,keyasint"`
}

// prunableMoves selects what MovePrune deletes. The record of an aborted move
// stays for as long as the move holds its tenant.
const prunableMoves = `SELECT move_id FROM ended_move e WHERE planned_at < ?
	AND NOT EXISTS (SELECT 1 FROM tenant t WHERE t.uid = e.uid AND t.move_id = e.move_id AND t.state = 'FROZEN')
	ORDER BY planned_at, move_id LIMIT ?`

func movePrune(tx *store.Tx, _ *raftfsm.Command, body MovePrune) (done MovesPruned, err error) {
	if body.Limit < 1 || body.Limit > maxPrune {
		return done, fault.New(fault.Invalid, "invalid-prune", "a limit is 1..%d rows", maxPrune)
	}
	if done.Moves, err = tx.Exec("DELETE FROM ended_move WHERE move_id IN ("+prunableMoves+")", body.Before, body.Limit); err != nil {
		return done, err
	}
	if done.Moves == 0 {
		return done, fault.New(fault.Conflict, "nothing-to-prune", "no move that is over was planned before that time")
	}
	_, err = tx.Exec("UPDATE cell SET moves_since = max(moves_since, ?)", body.Before)
	return done, err
}

// MovesPrunable reports whether there are moves that body would have forgotten.
func (s *Space) MovesPrunable(body MovePrune) (prunable bool, err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	err = s.view(func(c *store.Conn) error {
		prunable, err = c.One(prunableMoves, nil, body.Before, 1)
		return err
	})
	return prunable, err
}
