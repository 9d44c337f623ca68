package moves

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"celld/store/tenant"
)

// Encode makes the bytes of a record in directory.db: CBOR, core deterministic, a
// map with integer keys. A key is never given another meaning.
func (m Move) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, err
	}
	b, err := mode.Marshal(m)
	if err == nil && len(b) > MaxRecord {
		err = bad("record", "takes too many bytes")
	}
	return b, err
}

// Decode is Encode's inverse. It refuses unknown fields, trailing bytes and
// records that break a bound.
func Decode(b []byte) (Move, error) {
	if len(b) > MaxRecord {
		return Move{}, bad("record", "takes too many bytes")
	}
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxNestedLevels: 4, IndefLength: cbor.IndefLengthForbidden,
	}.DecMode()
	if err != nil {
		return Move{}, err
	}
	var m Move
	if err := mode.Unmarshal(b, &m); err != nil {
		return Move{}, fmt.Errorf("undecodable record of a move: %w", err)
	}
	return m, m.Check()
}

// String is a move in a line of a log.
func (m Move) String() string {
	return fmt.Sprintf("%s %s of %s %s@%d -> %s@%d: %s", m.Kind, m.ID, m.Tenant, m.From.Cell, m.EpochFrom, m.To.Cell, m.EpochTo, m.State)
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (d Digest) MarshalText() ([]byte, error) {
	if d == (Digest{}) {
		return nil, nil
	}
	return []byte(hex.EncodeToString(d[:])), nil
}

// shown is a move as operators see it.
type shown struct {
	MoveID    tenant.MoveID   `json:"moveId"`
	Kind      Kind            `json:"kind"`
	TenantID  tenant.ID       `json:"tenantId"`
	From      tenant.CellName `json:"from"`
	To        tenant.CellName `json:"to"`
	EpochFrom tenant.Epoch    `json:"epochFrom"`
	EpochTo   tenant.Epoch    `json:"epochTo"`
	State     State           `json:"state"`
	Decision  string          `json:"decision,omitempty"`
	DecidedBy string          `json:"decidedBy,omitempty"`
	DecidedAt string          `json:"decidedAt,omitempty"`
	Why       string          `json:"abortReason,omitempty"`
	Reason    string          `json:"reason"`
	AskedBy   string          `json:"askedBy"`
	PlannedAt string          `json:"plannedAt"`
	ChangedAt string          `json:"changedAt"`
	Executor  string          `json:"executor,omitempty"`
	Attempt   uint32          `json:"attempt"`

	PauseMillis float64    `json:"pauseMillis"`
	Bytes       uint64     `json:"bytes"`
	Wasted      uint64     `json:"bytesWasted"`
	Rounds      uint64     `json:"rounds"`
	Tail        uint64     `json:"tailBytes"`
	W           *Watermark `json:"watermark,omitempty"`
	Arrived     *Watermark `json:"arrived,omitempty"`
	Before      Digest     `json:"digestBefore"`
	Pages       Digest     `json:"pageDigest"`
	After       Digest     `json:"digestAfter"`
	Rows        uint64     `json:"rows"`
	Finding     string     `json:"finding,omitempty"`
	Accepted    string     `json:"accepted,omitempty"`

	Copy       Copy          `json:"retiredCopy"`
	Of         tenant.MoveID `json:"rollbackOf,omitempty"`
	RolledBack tenant.MoveID `json:"rolledBackBy,omitempty"`
}

// MarshalJSON is the form for operators. Cell keys and uids stay inside.
func (m Move) MarshalJSON() ([]byte, error) {
	r := m.Report
	s := shown{
		MoveID: m.ID, Kind: m.Kind, TenantID: m.Tenant, From: m.From.Cell, To: m.To.Cell, EpochFrom: m.EpochFrom, EpochTo: m.EpochTo,
		State: m.State, Reason: m.Reason, AskedBy: m.AskedBy, PlannedAt: stamp(m.PlannedAt), ChangedAt: stamp(m.ChangedAt),
		Executor: m.Executor, Attempt: m.Attempt, PauseMillis: float64(r.PauseMicros) / 1000, Bytes: r.Bytes, Wasted: r.Wasted,
		Rounds: r.Rounds, Tail: r.Tail, W: known(m.W), Arrived: known(m.Arrived), Before: r.Before, Pages: r.Pages, After: r.After,
		Rows: r.Rows, Finding: r.Finding, Accepted: r.Accepted, Copy: m.Copy, Of: m.Of, RolledBack: m.Undo,
	}
	if d := m.Decision; d.Index != 0 {
		s.Decision, s.DecidedBy, s.DecidedAt, s.Why = "abort", d.By, stamp(d.At), d.Why
		if d.Commit {
			s.Decision = "commit"
		}
	}
	return json.Marshal(s)
}

func stamp(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func known(w Watermark) *Watermark {
	if w == (Watermark{}) {
		return nil
	}
	return &w
}
