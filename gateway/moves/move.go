package moves

import (
	"unicode/utf8"

	"celld/store/fault"
	"celld/store/tenant"
)

// Bounds of a record.
const (
	// MaxAttempts is how often a copy may begin: a chain that breaks this often
	// would break for ever.
	MaxAttempts = 10
	// MaxText bounds a reason and a finding, in bytes.
	MaxText = 500
	// MaxActor bounds who asked and who executes, in bytes.
	MaxActor = 64
	// MaxRecord bounds an encoded record, in bytes.
	MaxRecord = 4096
)

// Digest is a SHA-256. Its zero value is no digest at all and equals nothing.
type Digest [32]byte

// Watermark is a point in a tenant's history in one cell: the index of a log
// entry, and the tenant's sequence as of that entry.
type Watermark struct {
	Index    uint64 `cbor:"1,keyasint,omitzero" json:"index"`
	Sequence uint64 `cbor:"2,keyasint,omitzero" json:"sequence"`
}

// End is one side of a move. A cell is its key: another cell under the same name
// is another cell.
type End struct {
	Cell tenant.CellName `cbor:"1,keyasint"`
	Key  tenant.CellKey  `cbor:"2,keyasint"`
	Done bool            `cbor:"3,keyasint,omitzero"` // after ABORT: it holds the move's terminal record
}

// Decision is COMMIT or ABORT: the first one, for ever. Its zero value is neither.
type Decision struct {
	Commit bool   `cbor:"1,keyasint,omitzero"`
	Index  uint64 `cbor:"2,keyasint,omitzero"` // of the directory's log entry; 0 while undecided
	At     int64  `cbor:"3,keyasint,omitzero"`
	By     string `cbor:"4,keyasint,omitzero"`
	Why    string `cbor:"5,keyasint,omitzero"`
}

// Report is what an operator may want to know afterwards. No rule depends on it,
// but for Finding.
type Report struct {
	Bytes       uint64 `cbor:"1,keyasint,omitzero"`  // shipped by this attempt
	Wasted      uint64 `cbor:"2,keyasint,omitzero"`  // shipped by attempts that broke
	Rounds      uint64 `cbor:"3,keyasint,omitzero"`  // of catching up, in this attempt
	Tail        uint64 `cbor:"4,keyasint,omitzero"`  // bytes that were left when the freeze was asked for
	FreezeAt    int64  `cbor:"5,keyasint,omitzero"`  // when it was asked for
	ActiveAt    int64  `cbor:"6,keyasint,omitzero"`  // when a cell was known to serve again
	PauseMicros uint64 `cbor:"7,keyasint,omitzero"`  // writes stood still
	Before      Digest `cbor:"8,keyasint,omitzero"`  // content of the staged copy and the source before the freeze
	Pages       Digest `cbor:"9,keyasint,omitzero"`  // pages at W
	After       Digest `cbor:"10,keyasint,omitzero"` // content at the destination as of the activation
	Rows        uint64 `cbor:"11,keyasint,omitzero"`
	Finding     string `cbor:"12,keyasint,omitzero"` // how the sides differ; "" is not at all
	Accepted    string `cbor:"13,keyasint,omitzero"` // why an operator let the move be complete in spite of it
}

// Move is the record of one move of one tenant. It is a comparable value: equal
// records are equal moves.
type Move struct {
	ID        tenant.MoveID `cbor:"1,keyasint"`
	Kind      Kind          `cbor:"2,keyasint"`
	Tenant    tenant.ID     `cbor:"3,keyasint"`
	UID       tenant.UID    `cbor:"4,keyasint"`
	From      End           `cbor:"5,keyasint"`
	To        End           `cbor:"6,keyasint"`
	EpochFrom tenant.Epoch  `cbor:"7,keyasint"`
	EpochTo   tenant.Epoch  `cbor:"8,keyasint"`
	State     State         `cbor:"9,keyasint"`
	Reason    string        `cbor:"10,keyasint"`
	AskedBy   string        `cbor:"11,keyasint"`
	PlannedAt int64         `cbor:"12,keyasint"` // times are unix microseconds
	ChangedAt int64         `cbor:"13,keyasint"`

	Term     uint64 `cbor:"14,keyasint,omitzero"` // of the executor; 0 is nobody yet
	Executor string `cbor:"15,keyasint,omitzero"`
	Attempt  uint32 `cbor:"16,keyasint,omitzero"` // of the copy, from 1

	W        Watermark `cbor:"17,keyasint,omitzero"` // the freeze at the source
	Arrived  Watermark `cbor:"18,keyasint,omitzero"` // the activation at the destination
	Decision Decision  `cbor:"19,keyasint,omitzero"`
	Copy     Copy      `cbor:"20,keyasint,omitzero"`
	Report   Report    `cbor:"21,keyasint,omitzero"`

	// Of a rollback: the move that it undoes, what that move's W was, the epoch of
	// the copy, and the sequence that the tenant must still have.
	Of        tenant.MoveID `cbor:"22,keyasint,omitzero"`
	CopyW     Watermark     `cbor:"23,keyasint,omitzero"`
	CopyEpoch tenant.Epoch  `cbor:"24,keyasint,omitzero"`
	Unwritten uint64        `cbor:"25,keyasint,omitzero"`
	// Of a transfer: the rollback of it that is under way or was committed.
	Undo tenant.MoveID `cbor:"26,keyasint,omitzero"`
}

// Order is what Plan makes a move of.
type Order struct {
	ID                 tenant.MoveID
	Tenant             tenant.ID
	UID                tenant.UID
	From, To           End
	EpochFrom, EpochTo tenant.Epoch
	Reason             string
}

// Entry is the directory's log entry that an event or an order stands in.
type Entry struct {
	Index    uint64
	At       int64 // unix microseconds
	Actor    string
	Operator bool // the actor is one
}

// Plan makes the record of a transfer. That the tenant takes part in no other
// move, and that EpochTo was never given out before, is the caller's to see to.
func Plan(o Order, at Entry) (Move, error) {
	m := Move{
		ID: o.ID, Kind: Transfer, Tenant: o.Tenant, UID: o.UID, From: o.From, To: o.To, EpochFrom: o.EpochFrom, EpochTo: o.EpochTo,
		State: Planned, Reason: o.Reason, AskedBy: at.Actor, PlannedAt: at.At, ChangedAt: at.At,
	}
	if err := m.Check(); err != nil {
		return Move{}, err
	}
	return m, nil
}

// PlanRollback makes the record of the rollback of a move, and the move's own as
// it is while the rollback is under way. The tenant's placement must have the
// epoch that the move gave it, placed; next was never given out before.
func PlanRollback(of Move, id tenant.MoveID, placed, next tenant.Epoch, reason string, at Entry) (rollback, undone Move, err error) {
	switch {
	case of.Kind != Transfer:
		err = refuse("rollback-of-rollback", "move %s is a rollback itself; move the tenant by a new move", of.ID)
	case of.State != Verifying && of.State != Complete:
		err = refuse("not-rolled-back", "move %s is %s; only a move that is verifying or complete is rolled back", of.ID, of.State)
	case of.Undo != "":
		err = refuse("rollback-running", "the rollback %s of move %s is under way", of.Undo, of.ID)
	case placed != of.EpochTo:
		err = refuse("moved-again", "the tenant has moved since move %s; move it by a new move", of.ID)
	case of.Copy != Kept:
		err = refuse("window-closed", "the copy that move %s left at %s is %s; move the tenant by a new move", of.ID, of.From.Cell, of.Copy)
	}
	if err != nil {
		return Move{}, Move{}, err
	}
	rollback = Move{
		ID: id, Kind: Rollback, Tenant: of.Tenant, UID: of.UID, From: End{Cell: of.To.Cell, Key: of.To.Key}, To: End{Cell: of.From.Cell, Key: of.From.Key},
		EpochFrom: of.EpochTo, EpochTo: next, State: Planned, Reason: reason, AskedBy: at.Actor, PlannedAt: at.At, ChangedAt: at.At,
		Of: of.ID, CopyW: of.W, CopyEpoch: of.EpochFrom, Unwritten: of.Arrived.Sequence,
	}
	if err := rollback.Check(); err != nil {
		return Move{}, Move{}, err
	}
	undone = of
	undone.Undo, undone.ChangedAt = id, at.At
	return rollback, undone, nil
}

// Undone is what has become of a move by its rollback. The directory calls it in
// every entry that changes the rollback.
func Undone(of, rollback Move) (Move, error) {
	if of.Undo != rollback.ID || rollback.Of != of.ID {
		return of, refuse("other-move", "%s is not the rollback of move %s", rollback.ID, of.ID)
	}
	switch {
	case rollback.State.Committed() && of.State != RolledBack:
		// The copy is the tenant now.
		of.State, of.Copy, of.ChangedAt = RolledBack, NoCopy, rollback.ChangedAt
	case rollback.State == Aborted:
		of.Undo, of.ChangedAt = "", rollback.ChangedAt
	}
	return of, nil
}

// Check refuses a record that breaks a bound or contradicts itself.
func (m Move) Check() error {
	switch {
	case !m.ID.Valid() || m.Of != "" && !m.Of.Valid() || m.Undo != "" && !m.Undo.Valid():
		return bad("move id", "must be 26 lower-case base32 characters")
	case !tenant.ValidID(string(m.Tenant)) || !m.UID.Valid():
		return bad("tenant", "must be a tenant's id and uid")
	case !m.From.valid() || !m.To.valid():
		return bad("cells", "must be names with their cell keys")
	case m.From.Cell == m.To.Cell || m.From.Key == m.To.Key:
		return bad("cells", "must be two")
	case m.EpochFrom == 0 || m.EpochTo <= m.EpochFrom:
		return bad("epoch", "must be above the tenant's")
	case m.State == 0 || m.State >= states || m.Kind != Transfer && m.Kind != Rollback || m.Copy > Dropped:
		return bad("state", "is none of the known ones; run the newer program")
	case m.Kind == Rollback != (m.Of != ""):
		return bad("kind", "contradicts the move that is undone")
	case m.Decision.Commit && !m.State.Committed(), m.State.Committed() && !m.Decision.Commit, m.State.Aborted() && m.Decision.Index == 0:
		return bad("decision", "contradicts the state")
	case m.Attempt > MaxAttempts:
		return bad("attempt", "is over the bound")
	case m.Reason == "":
		return bad("reason", "must be given")
	}
	for _, s := range []string{m.Reason, m.Decision.Why, m.Report.Finding, m.Report.Accepted} {
		if !plain(s, MaxText) {
			return bad("text", "must be at most 500 bytes of UTF-8 without control characters")
		}
	}
	for _, s := range []string{m.AskedBy, m.Executor, m.Decision.By} {
		if !plain(s, MaxActor) {
			return bad("actor", "must be at most 64 bytes of UTF-8 without control characters")
		}
	}
	return nil
}

func (e End) valid() bool {
	return tenant.ValidID(string(e.Cell)) && e.Key != "" && plain(string(e.Key), MaxActor)
}

// plain reports whether s fits into a line of a table.
func plain(s string, most int) bool {
	if len(s) > most || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}

func bad(field, what string) error {
	return fault.New(fault.Invalid, "invalid-move", "the move's %s %s", field, what)
}

func refuse(slug, format string, args ...any) error {
	return fault.New(fault.Conflict, slug, format, args...)
}
