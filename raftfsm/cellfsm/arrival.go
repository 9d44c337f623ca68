package cellfsm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// MoveImport is the body of MoveImportNumber, at the destination: the tenant may
// be brought here by this move. Nobody but the mover sees anything of it.
type MoveImport struct {
	Of        MoveRef        `cbor:"1,keyasint"`
	Tenant    tenant.ID      `cbor:"2,keyasint"`
	Epoch     tenant.Epoch   `cbor:"3,keyasint"` // of the tenant in this cell
	FromEpoch tenant.Epoch   `cbor:"4,keyasint"`
	FromKey   tenant.CellKey `cbor:"5,keyasint"`
	Cell      tenant.CellKey `cbor:"6,keyasint"` // the cell that was meant
	Secret    []byte         `cbor:"7,keyasint"` // what the tenant's cursors are sealed with
}

// MoveActivate is the body of MoveActivateNumber, at the destination: the move was
// committed, and the tenant's writer is here.
type MoveActivate struct {
	Of        MoveRef          `cbor:"1,keyasint"`
	Epoch     tenant.Epoch     `cbor:"2,keyasint"` // of the tenant in this cell
	Watermark tenant.Watermark `cbor:"3,keyasint"` // of the source's freeze
	Decision  Decision         `cbor:"4,keyasint"`
}

// Arrival is the record of a tenant that a move brings here: what MoveImport said.
type Arrival struct {
	Of        MoveRef
	Tenant    tenant.ID
	Epoch     tenant.Epoch
	FromEpoch tenant.Epoch
	FromKey   tenant.CellKey
	Secret    []byte
	Folder    string // of the incarnation, below tenants/<uid>
}

const arrivalColumns = "move_id, uid, planned_at, tenant_id, epoch, from_epoch, from_key, secret, folder"

func scanArrival(r *store.Row) Arrival {
	return Arrival{
		Of:     MoveRef{tenant.MoveID(r.ColumnText(0)), tenant.UID(r.ColumnText(1)), r.ColumnInt64(2)},
		Tenant: tenant.ID(r.ColumnText(3)), Epoch: tenant.Epoch(r.ColumnInt64(4)),
		FromEpoch: tenant.Epoch(r.ColumnInt64(5)), FromKey: tenant.CellKey(r.ColumnText(6)),
		Secret: store.Bytes(r, 7), Folder: r.ColumnText(8),
	}
}

func readArrival(c *store.Conn, uid tenant.UID) (a Arrival, found bool, err error) {
	found, err = c.One("SELECT "+arrivalColumns+" FROM arrival WHERE uid = ?",
		func(r *store.Row) error { a = scanArrival(r); return nil }, string(uid))
	return a, found, err
}

func (a *Arrival) is(body *MoveImport) bool {
	return a.Of == body.Of && a.Tenant == body.Tenant && a.Epoch == body.Epoch && a.FromEpoch == body.FromEpoch &&
		a.FromKey == body.FromKey && string(a.Secret) == string(body.Secret)
}

// Matches says why a file with that control row is not what the move is to bring
// here, nil if it is: frozen by the move, at the source's epoch, with everything
// up to the watermark.
func (a *Arrival) Matches(ctl store.Control, w tenant.Watermark) error {
	want := store.Control{
		UID: a.Of.UID, Tenant: a.Tenant, CellKey: a.FromKey, Epoch: a.FromEpoch, State: tenant.Frozen, Move: a.Of.Move,
		Applied: w.Index, Sequence: w.Sequence, LastTime: ctl.LastTime,
	}
	if ctl != want {
		return fmt.Errorf("its control row is %+v, not %+v", ctl, want)
	}
	return nil
}

func (s *Space) moveImport(tx *store.Tx, _ *raftfsm.Command, body MoveImport) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err != nil {
		return Moved{}, err
	}
	if !tenant.ValidID(string(body.Tenant)) || body.FromEpoch == 0 || body.Epoch <= body.FromEpoch || body.FromKey == "" || len(body.Secret) < secretSize {
		return Moved{}, fault.New(fault.Invalid, "invalid-move", "tenant id, both epochs, the source's key and the tenant's secret must be complete, and the epoch must grow")
	}
	if st.key == "" || body.Cell != st.key || body.FromKey == st.key {
		return Moved{}, fault.New(fault.Conflict, "wrong-cell", "this is not the cell that was meant: its key differs")
	}
	if err := st.mayBegin(); err != nil {
		return Moved{}, err
	}
	if st.coming {
		if st.arrival.is(&body) {
			return Moved{Index: tx.Index}, nil
		}
		return Moved{}, fault.New(fault.Conflict, "tenant-arriving", "a move brings the tenant here already; it has to end first").With("moveId", string(st.arrival.Of.Move))
	}
	if err := mayArrive(tx.Conn, &st, &body); err != nil {
		return Moved{}, err
	}
	folder := strconv.FormatUint(uint64(body.Epoch), 10) + "-" + string(body.Of.Move)
	_, err = tx.Exec("INSERT INTO arrival ("+arrivalColumns+", tenant_fold) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		string(body.Of.Move), string(body.Of.UID), body.Of.Planned, string(body.Tenant), uint64(body.Epoch), uint64(body.FromEpoch),
		string(body.FromKey), body.Secret, folder, body.Tenant.Fold())
	return Moved{Index: tx.Index}, err
}

// mayArrive refuses an arrival that a tenant which is here, or was here, forbids. A
// retired copy of the same tenant does not.
func mayArrive(c *store.Conn, st *standing, body *MoveImport) error {
	if st.here && st.row.State != tenant.Retired {
		return fault.New(fault.Conflict, "tenant-exists", "the cell stores this tenant").With("epoch", uint64(st.row.Epoch))
	}
	last := st.row.Epoch
	if !st.here {
		var err error
		if last, err = readDeparted(c, body.Of.UID); err != nil {
			return err
		}
	}
	if body.Epoch <= last {
		return fault.New(fault.Conflict, "epoch-used", "the cell has stored this tenant under this epoch or a later one").With("epoch", uint64(last))
	}
	taken, err := isTaken(c, body.Of.UID, body.Tenant)
	if err == nil && taken {
		err = fault.New(fault.Conflict, "tenant-exists", "the cell stores another tenant under this id")
	}
	if err != nil {
		return err
	}
	return hasRoomForMoves(c)
}

// isTaken reports whether another tenant has the public id here, or comes with it.
func isTaken(c *store.Conn, uid tenant.UID, id tenant.ID) (bool, error) {
	return c.One("SELECT 1 FROM tenant WHERE tenant_fold = ? AND uid <> ? UNION ALL SELECT 1 FROM arrival WHERE tenant_fold = ? AND uid <> ?",
		nil, id.Fold(), string(uid), id.Fold(), string(uid))
}

// readDeparted is the epoch of a tenant's last incarnation here, if it was dropped;
// else 0.
func readDeparted(c *store.Conn, uid tenant.UID) (last tenant.Epoch, err error) {
	_, err = c.One("SELECT epoch FROM departed WHERE uid = ?", func(r *store.Row) error { last = tenant.Epoch(r.ColumnInt64(0)); return nil }, string(uid))
	return last, err
}

// moveActivate decides by cell.db alone. That the staged file is what it should be
// is each replica's own business: one whose file is not lacks the tenant.
func (s *Space) moveActivate(tx *store.Tx, _ *raftfsm.Command, body MoveActivate) (Moved, error) {
	st, err := readStanding(tx, body.Of)
	if err == nil {
		err = st.decided(body.Decision, true)
	}
	if err == nil {
		err = st.unlessOver(activated)
	}
	if err != nil {
		return Moved{}, err
	}
	if st.over {
		return Moved{Index: st.end.index}, nil
	}
	if !st.coming || st.arrival.Of != st.of || st.arrival.Epoch != body.Epoch || body.Watermark.Index == 0 {
		return Moved{}, ErrUnknownMove
	}
	a := &st.arrival
	here, err := s.takeOver(tx, a, body.Watermark)
	if err != nil {
		return Moved{}, err
	}
	for _, sql := range []string{"DELETE FROM arrival WHERE uid = ?", "DELETE FROM departed WHERE uid = ?"} {
		if _, err := tx.Exec(sql, string(a.Of.UID)); err != nil {
			return Moved{}, err
		}
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO tenant ("+tenantColumns+", tenant_fold, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		string(a.Of.UID), string(a.Tenant), uint64(a.Epoch), a.Folder, a.Secret, tx.Index,
		tenant.Active.String(), string(a.Of.Move), tx.Index, a.Tenant.Fold(), tx.Now)
	if err == nil {
		err = st.endAs(tx, activated)
	}
	if err != nil {
		return Moved{}, err
	}
	s.turned(tx, a.Of.UID, a.Folder)
	if st.here {
		s.tellSweep(a.Of.UID) // of the retired copy
	}
	return Moved{Index: tx.Index, Sequence: body.Watermark.Sequence, Absent: !here}, nil
}

// takeOver makes the staged file the tenant's own in this cell, durably. A replica
// without it, or with another one, lacks the tenant from here on.
func (s *Space) takeOver(tx *store.Tx, a *Arrival, w tenant.Watermark) (here bool, err error) {
	uid := a.Of.UID
	path := s.arrivalPath(a)
	f, release, err := s.tenants.Acquire(handleKey(uid, a.Folder), path)
	if err != nil {
		if err = missing(path, err); !errors.Is(err, errBad) && !store.IsBad(err) {
			return false, fmt.Errorf("staged file of tenant %s: %w", uid, err)
		}
		return false, s.lack(uid, tx.Index, "no good file was staged when the tenant arrived: "+err.Error())
	}
	err = s.adopt(tx, a, w, f)
	release()
	if errors.Is(err, errStaged) || store.IsCorrupt(err) {
		s.tenants.Forget(handleKey(uid, a.Folder)) // what is fetched takes its place
		return false, s.lack(uid, tx.Index, err.Error())
	}
	if err != nil {
		return false, err
	}
	return true, s.found(uid)
}

// errStaged says that a staged file is not what the move brings.
var errStaged = errors.New("another file was staged than the one that was to arrive")

// adopt is idempotent: a file that this entry, or a later one, was applied to before
// stays as it is.
func (s *Space) adopt(tx *store.Tx, a *Arrival, w tenant.Watermark, f *store.File) error {
	key := tx.Control().CellKey
	if ctl := f.Control(); ctl.UID == a.Of.UID && ctl.CellKey == key && ctl.Epoch == a.Epoch && ctl.Applied >= tx.Index {
		return nil
	} else if err := a.Matches(ctl, w); err != nil {
		return fmt.Errorf("%w: %w", errStaged, err)
	}
	err := f.Update(func(t *store.Tx) error {
		return t.Savepoint(func() error {
			ctl := t.Control()
			ctl.CellKey, ctl.Epoch, ctl.State, ctl.Applied = key, a.Epoch, tenant.Active, tx.Index
			ctl.Move = a.Of.Move // until a member's first write, see settled
			return leaveBehind(t)
		})
	})
	if err = errors.Join(err, f.Sync(), store.SyncFolders(f.Path())); err != nil {
		return err
	}
	return s.at("adopted")
}

// leaveBehind ends, in a file that has just arrived, what was good at the place
// that it comes from and is not here. The row about the last copy at the source is
// all that there is so far; a table of leases has its line here.
func leaveBehind(tx *store.Tx) error {
	return tx.Query("DELETE FROM copy_start WHERE tenant_id = ?", nil, string(tx.Control().Tenant))
}

// arrivalPath is where the file of an arrival is staged, or where it was put when
// it had to be fetched and the log is being applied again.
func (s *Space) arrivalPath(a *Arrival) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.path(a.Of.UID, s.folder(&Tenant{UID: a.Of.UID, Folder: a.Folder}))
}

// ErrNoArrival says that no such move brings the tenant here.
var ErrNoArrival = fault.New(fault.Conflict, "no-arrival", "this cell has no import record of the move")

// Arrival returns the record of a tenant that is on its way here by that move, as
// far as this replica has applied the log.
func (s *Space) Arrival(uid tenant.UID, move tenant.MoveID) (a Arrival, err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	found := false
	err = s.view(func(c *store.Conn) (err error) {
		a, found, err = readArrival(c, uid)
		return err
	})
	if err == nil && (!found || a.Of.Move != move) {
		err = ErrNoArrival
	}
	return a, err
}

// PrepareArrival makes the folder of an arrival, if it is not there yet, and returns
// where the mover stages its file. The record is durable before the folder is there:
// so a folder that nothing names may go.
func (s *Space) PrepareArrival(uid tenant.UID, move tenant.MoveID) (path string, err error) {
	a, err := s.Arrival(uid, move)
	if err != nil {
		return "", err
	}
	if err := s.cell.Sync(nil); err != nil {
		return "", err
	}
	path = s.path(uid, a.Folder)
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

// CheckArrival says why the file that is staged here could not become the tenant's
// at the watermark, nil if it could. Nobody else has it open meanwhile.
func (s *Space) CheckArrival(uid tenant.UID, move tenant.MoveID, w tenant.Watermark) error {
	a, err := s.Arrival(uid, move)
	if err != nil {
		return err
	}
	path := s.path(uid, a.Folder)
	f, err := store.Open(path, TenantSchema())
	if err != nil {
		return missing(path, err)
	}
	return errors.Join(a.Matches(f.Control(), w), f.Close())
}
