package moves

import (
	"fmt"

	"celld/store/tenant"
)

// Do is something that the executor has to do now. Each is asked of one cell, may
// be repeated, and is answered by one event.
type Do uint8

const (
	Import            Do = iota + 1 // destination: log the import record; Imported
	FindCopy                        // destination: is the retired copy whole? CopyThere
	CopyBase                        // both: copy the base, as attempt Attempt; Copied or Broke
	CatchUp                         // both: ship rounds; Shipped, CaughtUp or Broke
	Freeze                          // source: log the freeze; Froze
	Prove                           // both: ship the rest and prove it; Proved or Broke
	Activate                        // destination, with COMMIT: Activated
	Retire                          // source, with COMMIT: Retired
	Compare                         // both: Compared
	ForgetSource                    // source, with ABORT: terminal record, then thaw; SourceForgot
	ForgetDestination               // destination, with ABORT: terminal record, nothing staged; DestinationForgot
	Drop                            // source: drop the retired copy; Drops
	dos
)

var doNames = [dos]string{"", "import", "find-copy", "copy-base", "catch-up", "freeze", "prove", "activate", "retire", "compare",
	"forget-source", "forget-destination", "drop"}

// String is the name in logs and scripts.
func (d Do) String() string {
	if d < dos {
		return doNames[d]
	}
	return fmt.Sprintf("do-%d", uint8(d))
}

// Next is what is to be done in the state that the record is in. It follows from
// the record alone, so that any executor can go on with any move. While writers
// wait, it is one thing.
func (m Move) Next() []Do {
	if m.Undo != "" {
		return nil // the rollback goes on
	}
	switch m.State {
	case Planned:
		if m.Kind == Rollback {
			return []Do{FindCopy}
		}
		return []Do{Import}
	case Copying:
		return []Do{CopyBase}
	case CatchingUp:
		return []Do{CatchUp}
	case Freezing:
		return []Do{Freeze}
	case Frozen:
		return []Do{Prove}
	case Committed:
		return []Do{Activate}
	case Activating:
		return []Do{Retire}
	case Verifying:
		if m.Report.Finding == "" {
			return []Do{Compare}
		}
	case Aborting:
		var do []Do
		if !m.From.Done {
			do = append(do, ForgetSource)
		}
		if !m.To.Done {
			do = append(do, ForgetDestination)
		}
		return do
	case Complete:
		if m.Copy == Dropping {
			return []Do{Drop}
		}
	}
	return nil
}

// Owner is the cell that owns the tenant by this record, and at which epoch: it
// changes by COMMIT, in the same log entry.
func (m Move) Owner() (End, tenant.Epoch) {
	if m.State.Committed() {
		return m.To, m.EpochTo
	}
	return m.From, m.EpochFrom
}

// Paused reports whether writes may be standing still: from the moment that a
// freeze may be sent until a cell is known to serve.
func (m Move) Paused() bool {
	switch m.State {
	case Freezing, Frozen, Committed:
		return true
	case Aborting:
		return m.Report.FreezeAt != 0 && !m.From.Done
	}
	return false
}
