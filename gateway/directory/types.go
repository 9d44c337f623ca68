package directory

import (
	"strings"
	"time"

	"celld/raftfsm/dirfsm"
	"celld/store/tenant"
)

// Actor is who asks for a change: a user, an operator or a gateway itself. It is
// made by ByUser or ByOperator; its zero value may do nothing.
type Actor struct{ name string }

// ByUser is the actor for a user's own request.
func ByUser(id tenant.UserID) Actor { return Actor{string(id)} }

// ByOperator is the actor for a call of the operator API. The name may be empty.
func ByOperator(name string) Actor { return Actor{dirfsm.OperatorPrefix + name} }

func (a Actor) operator() bool { return strings.HasPrefix(a.name, dirfsm.OperatorPrefix) }

// String is the actor in audit rows. A user's id holds no colon, so that no user
// can look like an operator.
func (a Actor) String() string { return a.name }

// CredentialKind says what a caller showed.
type CredentialKind uint8

const (
	APIToken     CredentialKind = iota + 1 // lives until it is revoked
	LoginSession                           // made from a password; lives for 12 hours
)

// Session is an authenticated caller.
type Session struct {
	User      tenant.UserID
	Kind      CredentialKind
	ID        string    // the token's or session's public id
	ExpiresAt time.Time // zero for an API token
}

// Access is what one user may do in one tenant, as of one read.
type Access struct {
	Placement tenant.Placement
	Role      tenant.Role
	Revision  tenant.Revision
}

// User is a user as shown to the user and to operators.
type User struct {
	ID        tenant.UserID
	Email     string
	Name      string
	CreatedAt time.Time
}

// NewUser is what CreateUser makes. An empty ID asks for a generated one; an
// empty Password leaves the user without one. WithToken also makes an API token.
type NewUser struct {
	ID        tenant.UserID
	Email     string
	Name      string
	Password  string
	WithToken bool
}

// UserCreated answers CreateUser. Token is empty on a replay: secrets are shown
// once.
type UserCreated struct {
	User    tenant.UserID
	TokenID string
	Token   string
}

// Token is an API token without its secret.
type Token struct {
	ID        string
	Name      string
	CreatedAt time.Time
}

// TokenCreated answers CreateToken. Secret is empty on a replay.
type TokenCreated struct {
	ID     string
	Secret string
}

// SessionOpened answers OpenSession.
type SessionOpened struct {
	ID        string
	User      tenant.UserID
	Token     string
	ExpiresAt time.Time
}

// NewTenant is what CreateTenant makes. Only operators may set ID and Cell; a
// user's own tenant has that user as Owner. An empty Region means any; an empty
// Tier means "pooled".
type NewTenant struct {
	ID     tenant.ID
	Name   string
	Owner  tenant.UserID
	Region string
	Tier   string
	Cell   tenant.CellName
}

// Tenant is a tenant as the directory knows it. No business data.
type Tenant struct {
	Placement tenant.Placement
	Name      string
	Owners    []tenant.UserID // filled by Tenant, not by Tenants
	Members   int             // likewise
	CreatedAt time.Time
}

// Membership is one of a user's tenants.
type Membership struct {
	Placement tenant.Placement
	Name      string
	Role      tenant.Role
	Revision  tenant.Revision
	Since     time.Time
}

// Member is one of a tenant's users.
type Member struct {
	User     tenant.UserID
	Email    string
	Name     string
	Role     tenant.Role
	Revision tenant.Revision
	Since    time.Time
}

// NewInvite is what Invite makes.
type NewInvite struct {
	Email string
	Role  tenant.Role
}

// Invite is an open invitation without its secret.
type Invite struct {
	ID        string
	Email     string
	Role      tenant.Role
	InvitedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
}

// InviteCreated answers Invite. Token is empty on a replay.
type InviteCreated struct {
	Invite
	Token string
}

// CellState says whether new tenants are placed in a cell.
type CellState string

const (
	CellActive   CellState = "active"
	CellDraining CellState = "draining" // keeps its tenants, gets no new ones
)

// Cell is a cell as gateways see it.
type Cell struct {
	Name     tenant.CellName
	Key      tenant.CellKey
	Region   string
	Tier     string
	State    CellState
	Capacity int               // tenants; PutCell takes 0 for 10,000
	Tenants  int               // placed there; filled by Cells alone
	Nodes    map[string]string // node name -> inner address, host:port
}

// AuditEntry is one line of the audit. Tenant and UID are empty where the act
// concerns no tenant.
type AuditEntry struct {
	ID      int64 // grows by one with each entry
	At      time.Time
	Actor   string
	Action  string
	Tenant  tenant.ID
	UID     tenant.UID
	Subject string // what was acted on: a user, an invite, a cell
	Detail  string
}

// AuditFilter narrows Audit. Before pages backwards by entry id; 0 starts at the
// newest.
type AuditFilter struct {
	Tenant tenant.ID
	Actor  string
	Before int64
	Limit  int // 1..500
}
