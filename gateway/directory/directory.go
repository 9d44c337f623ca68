package directory

import (
	"context"
	"net/http"

	"celld/raftfsm"
	"celld/store/tenant"
)

// Directory is one gateway's replica of the directory.
type Directory struct{}

func (d *Directory) Handler() http.Handler             { panic("soon") }
func (d *Directory) Close() error                      { panic("soon") }
func (d *Directory) Failed() <-chan error              { panic("soon") }
func (d *Directory) Ready() bool                       { panic("soon") }
func (d *Directory) IsLeader() bool                    { panic("soon") }
func (d *Directory) Applied() uint64                   { panic("soon") }
func (d *Directory) Fresh() error                      { panic("soon") } // nil inside the lease; else ErrNotFresh
func (d *Directory) Refresh(ctx context.Context) error { panic("soon") } // a read index asked for now, applied here

// Fresh reads: each checks the lease AFTER its read and answers ErrNotFresh
// (503) where it does not hold; the Stale twins do not check.
func (d *Directory) Authenticate(ctx context.Context, token string) (Session, error) { panic("soon") } // ErrUnauthenticated
func (d *Directory) AuthenticateStale(ctx context.Context, token string) (Session, error) {
	panic("soon")
}
func (d *Directory) Access(user tenant.UserID, id string) (Access, error)      { panic("soon") } // fault.Unknown(); exact case
func (d *Directory) AccessStale(user tenant.UserID, id string) (Access, error) { panic("soon") }
func (d *Directory) Cell(name tenant.CellName) (Cell, error)                   { panic("soon") } // fault.Unknown()

// Lists, read from the local replica as it is; call Fresh after them where it matters.
func (d *Directory) Cells() ([]Cell, error)                     { panic("soon") }
func (d *Directory) User(id tenant.UserID) (User, error)        { panic("soon") }
func (d *Directory) Tokens(user tenant.UserID) ([]Token, error) { panic("soon") }
func (d *Directory) Tenant(id tenant.ID) (Tenant, error)        { panic("soon") } // operators; deleted ones too
func (d *Directory) TenantByUID(uid tenant.UID) (Tenant, error) { panic("soon") }
func (d *Directory) Members(uid tenant.UID) ([]Member, error)   { panic("soon") } // at most 1,000
func (d *Directory) Invites(uid tenant.UID) ([]Invite, error)   { panic("soon") } // open ones, at most 1,000
func (d *Directory) Audit(f AuditFilter) ([]AuditEntry, error)  { panic("soon") } // newest first
func (d *Directory) Provisioning() ([]tenant.Placement, error)  { panic("soon") } // oldest first, at most 1,000: for the leader to resume
func (d *Directory) Memberships(user tenant.UserID, after tenant.ID, limit int) ([]Membership, error) {
	panic("soon") // by tenant id
}
func (d *Directory) Tenants(after tenant.ID, limit int) ([]Tenant, error) { panic("soon") } // by tenant id; limit 1..1000

// Changes. Every method proposes one command, forwards it to the leader where
// this gateway is not it, retries within ctx (at most 8 s) under one idempotency
// identity, and returns when every gateway has applied it or has lost its lease.
// key: Key and Hash are the caller's; Actor is set here, and the tenant's uid is
// appended to Operation. nil means that the client sent none. The bool says
// that the answer is a replay.
func (d *Directory) CreateUser(ctx context.Context, by Actor, key *raftfsm.Key, in NewUser) (UserCreated, bool, error) {
	panic("soon")
}
func (d *Directory) SetPassword(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, password string) (bool, error) {
	panic("soon") // closes the user's sessions
}
func (d *Directory) CreateToken(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, name string) (TokenCreated, bool, error) {
	panic("soon")
}
func (d *Directory) RevokeToken(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, tokenID string) (bool, error) {
	panic("soon")
}
func (d *Directory) OpenSession(ctx context.Context, email, password string) (SessionOpened, error) {
	panic("soon") // ErrUnauthenticated for an unknown email and a wrong password alike
}
func (d *Directory) CloseSession(ctx context.Context, s Session) error { panic("soon") } // 409 not-a-session for an API token

// CreateTenant reserves id, uid, cell and epoch; the placement is in state
// provisioning until ActivateTenant, which the caller sends when the cell has
// made the tenant's file.
func (d *Directory) CreateTenant(ctx context.Context, by Actor, key *raftfsm.Key, in NewTenant) (tenant.Placement, bool, error) {
	panic("soon")
}
func (d *Directory) ActivateTenant(ctx context.Context, uid tenant.UID, epoch tenant.Epoch) error {
	panic("soon") // idempotent
}
func (d *Directory) SetSuspended(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, suspended bool) (bool, error) {
	panic("soon")
}
func (d *Directory) Invite(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, in NewInvite) (InviteCreated, bool, error) {
	panic("soon")
}
func (d *Directory) RevokeInvite(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, inviteID string) (bool, error) {
	panic("soon")
}
func (d *Directory) AcceptInvite(ctx context.Context, by Actor, key *raftfsm.Key, token string) (Membership, bool, error) {
	panic("soon")
}
func (d *Directory) SetRole(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, user tenant.UserID, role tenant.Role) (Member, bool, error) {
	panic("soon")
}
func (d *Directory) RemoveMember(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, user tenant.UserID) (bool, error) {
	panic("soon")
}
func (d *Directory) PutCell(ctx context.Context, by Actor, key *raftfsm.Key, in Cell) (bool, error) {
	panic("soon") // 409 cell-key-changed
}
func (d *Directory) Record(ctx context.Context, by Actor, e AuditEntry) error {
	panic("soon") // an act that changed nothing, e.g. an operator's read
}
