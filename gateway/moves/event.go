package moves

import (
	"fmt"

	"celld/store/fault"
	"celld/store/tenant"
)

// What says what an event tells.
type What uint8

const (
	// Claims: from now on the executor of Term drives the move.
	Claims What = iota + 1
	// Imported: the destination has logged the import record.
	Imported
	// CopyThere: the copy that a rollback would activate is whole on a majority
	// (Proof).
	CopyThere
	// Copied: the base of Attempt is at the destination (Bytes).
	Copied
	// Shipped: a round of catching up is done (Bytes, Rounds); for the report alone.
	Shipped
	// CaughtUp: what is left is small (Tail); the staged copy passed quick_check and
	// its content equals the source's (Bytes, Rounds, Proof.Source, Proof.Staged).
	CaughtUp
	// Broke: the chain of Attempt is broken (Reason).
	Broke
	// Froze: the source has logged the freeze (At).
	Froze
	// Proved: all up to W is staged on a majority (Proof). It is the COMMIT.
	Proved
	// GivesUp: the executor, or an operator, wants the move undone (Reason). It is
	// the ABORT.
	GivesUp
	// SourceForgot: the source has the terminal record and writes again.
	SourceForgot
	// DestinationForgot: the destination has the terminal record and nothing staged.
	DestinationForgot
	// Activated: the destination has logged the activation (At, Pause).
	Activated
	// Retired: the source has logged its retirement.
	Retired
	// Compared: both sides were compared as of the activation (Proof.Source,
	// Proof.Staged, Rows, Reason where they differ otherwise).
	Compared
	// Accepts: an operator lets the move be complete in spite of a finding (Reason).
	Accepts
	// ClosesWindow: the copy at the source is needed no longer (Reason).
	ClosesWindow
	// Drops: the source has logged the drop.
	Drops
	whats
)

var whatNames = [whats]string{"", "claims", "imported", "copy-there", "copied", "shipped", "caught-up", "broke", "froze", "proved",
	"gives-up", "source-forgot", "destination-forgot", "activated", "retired", "compared", "accepts", "closes-window", "drops"}

// String is the name in logs, audit rows and scripts.
func (w What) String() string {
	if w < whats {
		return whatNames[w]
	}
	return fmt.Sprintf("event-%d", uint8(w))
}

// Proof is what was found on the copy that is to become the tenant.
type Proof struct {
	State   tenant.State `cbor:"1,keyasint,omitzero"` // of its control row
	Epoch   tenant.Epoch `cbor:"2,keyasint,omitzero"` // likewise
	W       Watermark    `cbor:"3,keyasint,omitzero"` // the last freeze that it contains
	Source  Digest       `cbor:"4,keyasint,omitzero"`
	Staged  Digest       `cbor:"5,keyasint,omitzero"`
	Durable uint32       `cbor:"6,keyasint,omitzero"` // replicas on whose disks it is, fsynced
	Voters  uint32       `cbor:"7,keyasint,omitzero"` // of the destination
}

func (p Proof) majority() bool {
	return p.Durable <= p.Voters && 2*uint64(p.Durable) > uint64(p.Voters)
}

func (p Proof) equal() bool { return p.Source != Digest{} && p.Source == p.Staged }

// Event is what an executor has learned or an operator asks for. It names the move
// and the epoch that the move gives, and the term under which the executor claimed
// the move; 0 is an operator.
type Event struct {
	Move    tenant.MoveID `cbor:"1,keyasint"`
	Epoch   tenant.Epoch  `cbor:"2,keyasint"`
	Term    uint64        `cbor:"3,keyasint,omitzero"`
	What    What          `cbor:"4,keyasint"`
	Attempt uint32        `cbor:"5,keyasint,omitzero"`
	Bytes   uint64        `cbor:"6,keyasint,omitzero"` // shipped by Attempt so far
	Rounds  uint64        `cbor:"7,keyasint,omitzero"` // of Attempt so far
	Tail    uint64        `cbor:"8,keyasint,omitzero"`
	At      Watermark     `cbor:"9,keyasint,omitzero"`
	Proof   Proof         `cbor:"10,keyasint,omitzero"`
	Pause   uint64        `cbor:"11,keyasint,omitzero"` // microseconds, by the executor's clock; 0 if it did not see both ends
	Rows    uint64        `cbor:"12,keyasint,omitzero"`
	Reason  string        `cbor:"13,keyasint,omitzero"`
}

// Check refuses an event that breaks a bound, whatever the move.
func (e Event) Check() error {
	switch {
	case !e.Move.Valid():
		return bad("id", "must be 26 lower-case base32 characters")
	case e.What == 0 || e.What >= whats:
		return fault.New(fault.Invalid, "invalid-move", "event %d of a move is unknown; run the newer program", e.What)
	case !plain(e.Reason, MaxText):
		return bad("reason", "must be at most 500 bytes of UTF-8 without control characters")
	case e.Reason == "" && e.needsReason():
		return bad("reason", "must be given")
	}
	return nil
}

func (e Event) needsReason() bool {
	switch e.What {
	case Broke, GivesUp, Accepts, ClosesWindow:
		return true
	}
	return false
}
