package dirfsm

import (
	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// moving is what planning a move needs to know of a tenant.
type moving struct {
	owned
	cell         tenant.CellName
	last         tenant.Epoch
	region, tier string
}

func loadMoving(tx *store.Tx, uid tenant.UID) (moving, error) {
	t := moving{}
	var err error
	if t.owned, err = loadTenant(tx, uid); err != nil {
		return t, err
	}
	_, err = tx.One("SELECT cell, last_epoch, region, tier FROM tenant WHERE uid = ?", func(r *store.Row) error {
		t.cell, t.last, t.region, t.tier = tenant.CellName(r.ColumnText(0)), tenant.Epoch(r.ColumnInt64(1)), r.ColumnText(2), r.ColumnText(3)
		return nil
	}, string(uid))
	return t, err
}

// place is a cell as one end of a move.
type place struct {
	moves.End
	region, tier, state string
	tenants, capacity   int64
}

func loadEnd(tx *store.Tx, name tenant.CellName) (place, error) {
	p := place{}
	found, err := tx.One("SELECT cell_key, region, tier, state, tenants, capacity FROM cell WHERE name = ?", func(r *store.Row) error {
		p.End = moves.End{Cell: name, Key: tenant.CellKey(r.ColumnText(0))}
		p.region, p.tier, p.state = r.ColumnText(1), r.ColumnText(2), r.ColumnText(3)
		p.tenants, p.capacity = r.ColumnInt64(4), r.ColumnInt64(5)
		return nil
	}, string(name))
	if err == nil && !found {
		err = fault.New(fault.Impossible, "no-cell", "there is no cell %s", name)
	}
	return p, err
}

// mayReceive holds a destination against what the tenant was promised.
func mayReceive(t moving, to place) error {
	switch {
	case to.Cell == t.cell:
		return fault.New(fault.Conflict, "same-cell", "the tenant is in the cell %s already", to.Cell)
	case to.region != t.region:
		return fault.New(fault.Conflict, "wrong-region", "the tenant belongs to the region %s, the cell %s to %s", t.region, to.Cell, to.region)
	case to.tier != t.tier:
		return fault.New(fault.Conflict, "wrong-tier", "the tenant is of the tier %s, the cell %s of %s", t.tier, to.Cell, to.tier)
	case to.state != "active":
		return fault.New(fault.Conflict, "cell-draining", "the cell %s takes no new tenants", to.Cell)
	case to.tenants >= to.capacity:
		return fault.New(fault.Conflict, "no-capacity", "the cell %s is full", to.Cell)
	}
	return nil
}

func belowMoveLimit(tx *store.Tx, cell tenant.CellName, most int64) error {
	n, err := count(tx, "SELECT count(*) FROM move WHERE open = 1 AND ? IN (source, destination)", string(cell))
	if err == nil && n >= most {
		err = quota("move-limit", "the cells take part in at most %d moves at once each; wait until one is over", int(most))
	}
	return err
}

// unknownMove refuses an id that a move has: ids are random, so it is a mistake.
func unknownMove(tx *store.Tx, id tenant.MoveID) error {
	n, err := count(tx, "SELECT count(*) FROM move WHERE move_id = ?", string(id))
	if err == nil && n > 0 {
		err = fault.New(fault.Conflict, "move-exists", "there is a move %s", id)
	}
	return err
}

func loadMove(tx *store.Tx, id tenant.MoveID) (moves.Move, error) {
	var m moves.Move
	found, err := tx.One("SELECT record FROM move WHERE move_id = ?", func(r *store.Row) (err error) {
		m, err = decodeMove(r, 0)
		return err
	}, string(id))
	if err == nil && !found {
		err = fault.Unknown()
	}
	return m, err
}

// decodeMove reads a record. One that can't be read is no refusal of whoever asks:
// the replica is damaged, or older than who wrote it.
func decodeMove(r *store.Row, column int) (moves.Move, error) {
	m, err := moves.Decode(store.Bytes(r, column))
	if err != nil {
		return m, fault.New(fault.Internal, "internal", "a record of a move can't be read").Because(err)
	}
	return m, nil
}

// saveMove writes a record, and beside it what rows are found by.
func saveMove(tx *store.Tx, m moves.Move) error {
	record, err := m.Encode()
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO move (move_id, uid, source, destination, epoch_to, state, copy, open, planned_at, changed_at, record)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
		ON CONFLICT (move_id) DO UPDATE SET state = ?6, copy = ?7, open = ?8, changed_at = ?10, record = ?11`,
		string(m.ID), string(m.UID), string(m.From.Cell), string(m.To.Cell), uint64(m.EpochTo), m.State.String(), m.Copy.String(), !m.State.Over(), m.PlannedAt, m.ChangedAt, record)
	return err
}

// PruneMoves deletes the records of moves that have been over since before a time
// and have left no copy, at most Limit of them.
type PruneMoves struct {
	_      struct{} `cbor:",toarray"`
	Before int64    // unix microseconds
	Limit  int64
}

func pruneMoves(tx *store.Tx, c *raftfsm.Command, b PruneMoves) (Pruned, error) {
	if !isGateway(c) {
		return Pruned{}, errForbidden
	}
	n, err := tx.Exec(`DELETE FROM move WHERE move_id IN
		(SELECT move_id FROM move WHERE open = 0 AND copy IN ('none', 'dropped') AND changed_at < ? ORDER BY changed_at, move_id LIMIT ?)`, b.Before, b.Limit)
	return Pruned{Deleted: int64(n), More: int64(n) == b.Limit}, err
}
