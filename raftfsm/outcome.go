package raftfsm

import (
	"time"

	"celld/store/fault"
)

// Outcome is what became of a command that was applied.
type Outcome struct {
	_        struct{} `cbor:",toarray"`
	Index    uint64   // the log entry that held it
	Result   []byte   // the handler's result, encoded
	Replayed bool     // the effect is an earlier command's under the same key
}

// Into decodes the result.
func (o Outcome) Into(v any) error { return Decode(o.Result, v) }

// Errors of proposing. ErrNotLeader is certain: nothing was proposed and another
// node may be asked. ErrUnknown is not: the command may yet take effect, and only
// a retry under the same key tells. ErrAbsent is what a Space says of a target
// whose file is missing, behind or bad here: another member may have it.
var (
	ErrNotLeader = (&fault.Error{Kind: fault.Unavailable, Slug: "not-leader", Detail: "this node does not lead; retry"}).After(time.Second)
	ErrUnknown   = (&fault.Error{Kind: fault.Unavailable, Slug: "outcome-unknown", Detail: "the outcome is unknown; retry with the same Idempotency-Key"}).After(time.Second)
	ErrBusy      = (&fault.Error{Kind: fault.Unavailable, Slug: "busy", Detail: "too many writes are waiting; retry"}).After(time.Second)
	ErrKeyReused = &fault.Error{Kind: fault.Impossible, Slug: "idempotency-key-reused", Detail: "this Idempotency-Key was used for another request; use a new one"}
	ErrAbsent    = (&fault.Error{Kind: fault.Unavailable, Slug: "tenant-absent", Detail: "this replica lacks the tenant's file and is fetching it; retry"}).After(time.Second)
	ErrBehind    = (&fault.Error{Kind: fault.Unavailable, Slug: "behind", Detail: "this replica has not seen the index that was asked for; retry"}).After(time.Second)
)
