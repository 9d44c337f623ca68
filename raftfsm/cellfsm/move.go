package cellfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// MoveRef says which move of which tenant a command belongs to.
type MoveRef struct {
	Move tenant.MoveID `cbor:"1,keyasint"`
	UID  tenant.UID    `cbor:"2,keyasint"`
	// Planned is when the directory's log planned the move, in unix microseconds: in
	// that log time does not go back. It never changes within a move.
	Planned int64 `cbor:"3,keyasint"`
}

// Decision is what the directory's log has decided about a move. A cell takes it
// from a signed token before it proposes a command with it; apply compares move ids
// and nothing else.
type Decision struct {
	Move   tenant.MoveID `cbor:"1,keyasint"`
	Commit bool          `cbor:"2,keyasint"`
	Index  uint64        `cbor:"3,keyasint"` // of the directory's log
}

// MoveStart is the body of MoveStartNumber, at the source: a copy of the tenant's
// file begins. It leaves a row in the file, so that whoever pins it finds its WAL
// not empty. Each repetition begins another copy.
type MoveStart struct {
	Of    MoveRef      `cbor:"1,keyasint"`
	Epoch tenant.Epoch `cbor:"2,keyasint"` // of the tenant in this cell
}

// MoveFreeze is the body of MoveFreezeNumber, at the source: from its entry on the
// tenant has no writer. The result is the watermark.
type MoveFreeze struct {
	Of    MoveRef      `cbor:"1,keyasint"`
	Epoch tenant.Epoch `cbor:"2,keyasint"`
}

// MoveThaw is the body of MoveThawNumber, at the source: the move was aborted, and
// the tenant goes on here.
type MoveThaw struct {
	Of       MoveRef      `cbor:"1,keyasint"`
	Epoch    tenant.Epoch `cbor:"2,keyasint"`
	Decision Decision     `cbor:"3,keyasint"`
}

// MoveRetire is the body of MoveRetireNumber, at the source: the move was
// committed, and what is here is no longer the tenant's.
type MoveRetire struct {
	Of       MoveRef      `cbor:"1,keyasint"`
	Epoch    tenant.Epoch `cbor:"2,keyasint"`
	Decision Decision     `cbor:"3,keyasint"`
}

// MoveDrop is the body of MoveDropNumber, at the source: the retired copy goes, on
// every replica.
type MoveDrop struct {
	Of    MoveRef      `cbor:"1,keyasint"`
	Epoch tenant.Epoch `cbor:"2,keyasint"`
}

// MoveAbort is the body of MoveAbortNumber, at both cells: the move is over, and
// nothing of it that comes later has an effect. A cell that does not know the move
// notes it too.
type MoveAbort struct {
	Of       MoveRef  `cbor:"1,keyasint"`
	Decision Decision `cbor:"2,keyasint"`
}

// Moved is the result of every command about one move.
type Moved struct {
	// Index is the log entry that had the effect, this one's or an earlier one's.
	Index uint64 `cbor:"1,keyasint"`
	// Sequence is the tenant's, of a freeze: with Index it is the watermark.
	Sequence uint64 `cbor:"2,keyasint,omitempty"`
	// Absent says that the replica which answers lacks the tenant's file: it had the
	// effect all the same, but knows no sequence. Another replica does.
	Absent bool `cbor:"3,keyasint,omitempty"`
}

// ErrMoveOver refuses what belongs to a move that has ended the other way, and
// ErrUnknownMove what needs a record that the cell does not have.
var (
	ErrMoveOver    = fault.New(fault.Conflict, "move-over", "the move has ended in this cell; it is not taken up again")
	ErrUnknownMove = fault.New(fault.Conflict, "move-unknown", "the cell has no record of this move that would allow it")
)

// standing is everything that decides about a command of one move. It is read from
// cell.db alone: a replica that lacks the tenant's file, or whose file is ahead
// because the log is being applied again, decides alike.
type standing struct {
	of      MoveRef
	key     tenant.CellKey
	row     Tenant // of the tenant, if here
	here    bool
	arrival Arrival // of the tenant, by whatever move, if coming
	coming  bool
	end     ending // of this move, if over
	over    bool
	since   int64 // moves planned before it are too old to begin
}

func readStanding(tx *store.Tx, of MoveRef) (st standing, err error) {
	if !of.Move.Valid() || !of.UID.Valid() || of.Planned <= 0 {
		return st, fault.New(fault.Invalid, "invalid-move", "move id, tenant uid and the time of planning must be complete")
	}
	st.of, st.key = of, tx.Control().CellKey
	if st.row, st.here, err = readTenant(tx.Conn, of.UID); err != nil {
		return st, err
	}
	if st.arrival, st.coming, err = readArrival(tx.Conn, of.UID); err != nil {
		return st, err
	}
	if st.end, st.over, err = readEnding(tx.Conn, of.Move); err != nil {
		return st, err
	}
	st.since, err = readSince(tx.Conn)
	return st, err
}

// mayBegin refuses a command that would make a record of a move that is over, or
// whose record may have been pruned.
func (st *standing) mayBegin() error {
	if st.over {
		return ErrMoveOver.With("outcome", string(st.end.outcome))
	}
	if st.of.Planned < st.since {
		return fault.New(fault.Conflict, "move-too-old", "the move was planned so long ago that the cell no longer knows whether it is over; plan a new one")
	}
	return nil
}

// unlessOver refuses a command of a move that has ended otherwise than as.
func (st *standing) unlessOver(as outcome) error {
	if st.over && st.end.outcome != as {
		return ErrMoveOver.With("outcome", string(st.end.outcome))
	}
	return nil
}

// at refuses a command for a tenant that is not here, or not at epoch.
func (st *standing) at(epoch tenant.Epoch) error {
	switch {
	case !st.here:
		return ErrNotHere
	case st.row.Epoch != epoch:
		return errOtherEpoch(st.row.Epoch)
	}
	return nil
}

// frozenByIt refuses a command that only the move which holds the tenant may give.
func (st *standing) frozenByIt() error {
	switch {
	case st.row.State == tenant.Frozen && st.row.Move == st.of.Move:
		return nil
	case st.row.State == tenant.Frozen:
		return ErrFenced.With("epoch", uint64(st.row.Epoch))
	case st.row.State == tenant.Retired:
		return ErrNotHere.With("epoch", uint64(st.row.Epoch))
	}
	return fault.New(fault.Conflict, "not-frozen", "the tenant is not frozen")
}

// active refuses a command for a tenant that has no writer here.
func (st *standing) active() error {
	switch st.row.State {
	case tenant.Active:
		return nil
	case tenant.Frozen:
		return ErrFenced.With("epoch", uint64(st.row.Epoch))
	}
	return ErrNotHere.With("epoch", uint64(st.row.Epoch))
}

// decided refuses a decision that is about another move, or the other one.
func (st *standing) decided(d Decision, commit bool) error {
	if d.Move != st.of.Move || d.Commit != commit || d.Index == 0 {
		return fault.New(fault.Invalid, "wrong-decision", "this needs the directory's decision about this move, and this one is not it")
	}
	return nil
}

func (s *Space) moveStart(tx *store.Tx, _ *raftfsm.Command, body MoveStart) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.mayBegin()
	}
	if err == nil {
		err = hasRoomForMoves(tx.Conn)
	}
	if err == nil {
		err = st.at(body.Epoch)
	}
	if err == nil {
		err = st.active()
	}
	if err != nil {
		return Moved{}, err
	}
	return s.turn(tx, &st, tenant.Active, st.row.Move, func(t *store.Tx) error {
		return t.Query(`INSERT INTO copy_start (tenant_id, move_id, epoch, copies, at) VALUES (?, ?, ?, 1, ?)
			ON CONFLICT (tenant_id) DO UPDATE SET move_id = excluded.move_id, epoch = excluded.epoch, at = excluded.at, copies = copies + 1`,
			nil, string(st.row.ID), string(st.of.Move), uint64(st.row.Epoch), tx.Now)
	})
}

func (s *Space) moveFreeze(tx *store.Tx, _ *raftfsm.Command, body MoveFreeze) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.mayBegin()
	}
	if err == nil {
		err = st.at(body.Epoch)
	}
	if err != nil {
		return Moved{}, err
	}
	if st.frozenByIt() == nil {
		return s.frozenAt(tx, &st)
	}
	if err := st.active(); err != nil {
		return Moved{}, err
	}
	return s.turn(tx, &st, tenant.Frozen, st.of.Move, func(t *store.Tx) error {
		t.Control().State, t.Control().Move = tenant.Frozen, st.of.Move
		return nil
	})
}

// frozenAt is the watermark of a tenant that was frozen before: nothing has changed
// its control row since.
func (s *Space) frozenAt(tx *store.Tx, st *standing) (Moved, error) {
	ctl, here, err := s.touch(tx, &st.row, nil)
	if err != nil || !here {
		return Moved{Index: st.row.Changed, Absent: true}, err
	}
	return Moved{Index: st.row.Changed, Sequence: ctl.Sequence}, nil
}

func (s *Space) moveThaw(tx *store.Tx, _ *raftfsm.Command, body MoveThaw) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.decided(body.Decision, false)
	}
	if err == nil {
		err = st.unlessOver(aborted)
	}
	if err == nil {
		err = st.at(body.Epoch)
	}
	if err != nil {
		return Moved{}, err
	}
	if st.row.State == tenant.Active && st.over {
		return Moved{Index: st.end.index}, nil // thawed before, or never frozen
	}
	if err := st.frozenByIt(); err != nil {
		return Moved{}, err
	}
	made, err := s.turn(tx, &st, tenant.Active, "", func(t *store.Tx) error {
		t.Control().State, t.Control().Move = tenant.Active, ""
		return nil
	})
	if err == nil && !st.over {
		err = st.endAs(tx, aborted)
	}
	return made, err
}

func (s *Space) moveRetire(tx *store.Tx, _ *raftfsm.Command, body MoveRetire) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.decided(body.Decision, true)
	}
	if err == nil {
		err = st.unlessOver(retired)
	}
	if err == nil && st.over {
		return Moved{Index: st.end.index}, nil // retired before, and dropped perhaps
	}
	if err == nil {
		err = st.at(body.Epoch)
	}
	if err == nil {
		err = st.frozenByIt()
	}
	if err != nil {
		return Moved{}, err
	}
	made, err := s.turn(tx, &st, tenant.Retired, st.of.Move, func(t *store.Tx) error {
		t.Control().State = tenant.Retired
		return nil
	})
	if err == nil {
		err = st.endAs(tx, retired)
	}
	return made, err
}

// moveDrop leaves the bytes to Sweep: removing them takes as long as they are many.
func (s *Space) moveDrop(tx *store.Tx, _ *raftfsm.Command, body MoveDrop) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err != nil {
		return Moved{}, err
	}
	if st.over && st.end.outcome == retired && (!st.here || st.row.Epoch > body.Epoch) {
		return Moved{Index: st.end.index}, nil // dropped before, or replaced by an arrival
	}
	if err := st.at(body.Epoch); err != nil {
		return Moved{}, err
	}
	if st.row.State != tenant.Retired || st.row.Move != st.of.Move {
		return Moved{}, fault.New(fault.Conflict, "not-retired", "only a copy that this move has retired may be dropped")
	}
	if _, err := tx.Exec("DELETE FROM tenant WHERE uid = ?", string(st.row.UID)); err != nil {
		return Moved{}, err
	}
	// The last epoch here stays known: the tenant is not made here again, and comes
	// back under a higher one.
	if _, err := tx.Exec("INSERT OR REPLACE INTO departed (uid, epoch) VALUES (?, ?)", string(st.row.UID), uint64(st.row.Epoch)); err != nil {
		return Moved{}, err
	}
	s.turned(tx, st.row.UID, "")
	s.tellSweep(st.row.UID)
	return Moved{Index: tx.Index}, nil
}

func (s *Space) moveAbort(tx *store.Tx, _ *raftfsm.Command, body MoveAbort) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.decided(body.Decision, false)
	}
	if err == nil {
		err = st.unlessOver(aborted)
	}
	if err != nil {
		return Moved{}, err
	}
	if st.over {
		return Moved{Index: st.end.index}, nil
	}
	if st.coming && st.arrival.Of.Move == st.of.Move {
		if _, err := tx.Exec("DELETE FROM arrival WHERE uid = ?", string(st.of.UID)); err != nil {
			return Moved{}, err
		}
		s.tellSweep(st.of.UID)
	}
	return Moved{Index: tx.Index}, st.endAs(tx, aborted)
}

// turn brings a tenant into a state: its file first, durably, then cell.db's row.
func (s *Space) turn(tx *store.Tx, st *standing, to tenant.State, move tenant.MoveID, change func(*store.Tx) error) (Moved, error) {
	ctl, here, err := s.touch(tx, &st.row, change)
	if err != nil {
		return Moved{}, err
	}
	if _, err := tx.Exec("UPDATE tenant SET state = ?, move_id = ?, changed_index = ? WHERE uid = ?",
		to.String(), string(move), tx.Index, string(st.row.UID)); err != nil {
		return Moved{}, err
	}
	s.turned(tx, st.row.UID, st.row.Folder)
	return Moved{Index: tx.Index, Sequence: ctl.Sequence, Absent: !here}, nil
}
