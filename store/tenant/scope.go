package tenant

import "celld/store/fault"

// State is a tenant's state in one cell's file.
type State uint8

const (
	Importing State = iota + 1 // being filled by a move; only the mover may write
	Active                     // the one writer
	Frozen                     // a move holds it: no writes
	Retired                    // moved away; kept for the rollback window
)

var stateNames = [...]string{"", "IMPORTING", "ACTIVE", "FROZEN", "RETIRED"}

// String is the state's name on disk and in logs.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return ""
}

// ParseState reads a state's name from disk.
func ParseState(s string) (State, bool) {
	for i, name := range stateNames {
		if i > 0 && s == name {
			return State(i), true
		}
	}
	return 0, false
}

// Watermark is the point in a tenant's history at which a move froze it.
type Watermark struct {
	Index    uint64 `cbor:"1,keyasint"` // of the freeze, in the source's log
	Sequence uint64 `cbor:"2,keyasint"` // of the tenant's last command
}

// PlacementState is where a tenant stands in the directory.
type PlacementState string

const (
	Provisioning PlacementState = "provisioning"
	Placed       PlacementState = "active"
	Moving       PlacementState = "moving"
	Deleting     PlacementState = "deleting"
	Deleted      PlacementState = "deleted"
)

// Placement says which cell owns a tenant.
type Placement struct {
	Tenant        ID
	UID           UID
	Cell          CellName
	Epoch         Epoch
	State         PlacementState
	Region        string
	Tier          string
	SchemaVersion int
	ChangedAt     int64 // unix microseconds
	Suspended     bool
}

// Scope is the authority under which a request acts: one actor in one tenant.
// It is a value that is passed on, never read from surroundings; its zero value
// grants nothing and Check refuses it.
type Scope struct {
	Tenant   ID
	UID      UID
	Epoch    Epoch
	Actor    UserID
	Role     Role
	Revision Revision
}

// Check refuses a scope that is not complete.
func (s Scope) Check() error {
	if s.Tenant == "" || !s.UID.Valid() || s.Epoch == 0 || s.Actor == "" || s.Role < Viewer || s.Role > Owner {
		return fault.New(fault.Forbidden, "no-scope", "the request carries no complete scope")
	}
	return nil
}

// Allow refuses a scope that is not complete or whose role lacks the right to a.
func (s Scope) Allow(a Action) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !s.Role.Can(a) {
		return fault.New(fault.Forbidden, "forbidden", "the role %s may not do this; ask an owner or admin of the tenant", s.Role)
	}
	return nil
}

// Internal reports whether the scope may see fields marked internal.
func (s Scope) Internal() bool { return s.Role.Can(ReadInternal) }
