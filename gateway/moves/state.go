package moves

import "fmt"

// State is how far a move has come. What a state means, and what is to be done in
// it, stands in the diagram of doc.go.
type State uint8

const (
	Planned    State = iota + 1 // an epoch is taken; nothing has been asked of a cell
	Copying                     // the destination has an import record; pages are copied
	CatchingUp                  // the base is there; the tail is shipped in rounds
	Freezing                    // the freeze may have been applied
	Frozen                      // W is known; the rest is shipped and proved
	Committed                   // decided: the destination owns the tenant, and does not serve it yet
	Activating                  // the destination serves; the source is to retire
	Verifying                   // the source is retired; both sides are compared
	Complete                    // over
	Aborting                    // decided: the source keeps the tenant; the cells are to forget the move
	Aborted                     // over
	RolledBack                  // over: a rollback of this move was committed
	states
)

var stateNames = [states]string{"", "planned", "copying", "catching-up", "freezing", "frozen", "committed",
	"activating", "verifying", "complete", "aborting", "aborted", "rolled-back"}

// String is the state's name in the API.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state-%d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseState reads a state's name, matched exactly.
func ParseState(name string) (State, bool) {
	for i, n := range stateNames {
		if i > 0 && n == name {
			return State(i), true
		}
	}
	return 0, false
}

// Over reports whether nothing is left to do but dropping a retired copy: the
// tenant may take part in another move.
func (s State) Over() bool { return s == Complete || s == Aborted || s == RolledBack }

// Committed reports whether COMMIT was decided.
func (s State) Committed() bool {
	return s >= Committed && s <= Complete || s == RolledBack
}

// Aborted reports whether ABORT was decided.
func (s State) Aborted() bool { return s == Aborting || s == Aborted }

// Kind tells the two kinds of moves apart.
type Kind uint8

const (
	Transfer Kind = iota + 1 // carries the tenant's file to another cell
	Rollback                 // gives the tenant back to the copy that a transfer retired
)

// String is the kind's name in the API.
func (k Kind) String() string {
	switch k {
	case Transfer:
		return "transfer"
	case Rollback:
		return "rollback"
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Copy is what is known of the copy that a committed move leaves at its source.
type Copy uint8

const (
	NoCopy   Copy = iota // none yet, or it is the tenant itself
	Kept                 // for the rollback window
	Dropping             // the window is closed: a drop may have been sent
	Dropped
)

// String is the name in the API.
func (c Copy) String() string {
	switch c {
	case NoCopy:
		return "none"
	case Kept:
		return "kept"
	case Dropping:
		return "dropping"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("copy-%d", uint8(c))
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (c Copy) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
