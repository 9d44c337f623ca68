package dirfsm

import (
	"strings"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Prefixes of actors that are no users.
const (
	OperatorPrefix = "operator:"
	GatewayPrefix  = "gateway:"
)

// Refusals that callers tell apart.
var (
	ErrSuspended = &fault.Error{Kind: fault.Forbidden, Slug: "tenant-suspended", Detail: "the tenant is suspended; ask the operator"}
	ErrLastOwner = &fault.Error{Kind: fault.Conflict, Slug: "last-owner", Detail: "a tenant keeps at least one owner; make another member an owner first"}
	errForbidden = &fault.Error{Kind: fault.Forbidden, Slug: "forbidden", Detail: "the caller may not do this"}
)

// ErrUnauthenticated is every refusal of a credential.
var ErrUnauthenticated = &fault.Error{Kind: fault.Unauthenticated, Slug: "unauthenticated", Detail: "the credentials are missing, wrong or no longer good"}

func isOperator(c *raftfsm.Command) bool { return strings.HasPrefix(c.Actor, OperatorPrefix) }
func isGateway(c *raftfsm.Command) bool  { return strings.HasPrefix(c.Actor, GatewayPrefix) }

func needOperator(c *raftfsm.Command) error {
	if !isOperator(c) {
		return errForbidden
	}
	return nil
}

// needSelf lets the user itself and operators act on a user's credentials.
func needSelf(tx *store.Tx, c *raftfsm.Command, user tenant.UserID) error {
	if !isOperator(c) && c.Actor != string(user) {
		return fault.Unknown()
	}
	found, err := tx.One("SELECT 1 FROM user WHERE user_id = ?", nil, string(user))
	if err != nil {
		return err
	}
	if !found {
		return fault.Unknown()
	}
	return nil
}

// owned is what a command about a tenant needs to know of it.
type owned struct {
	uid       tenant.UID
	id        tenant.ID
	state     tenant.PlacementState
	epoch     tenant.Epoch
	suspended bool
	policy    tenant.Revision
}

func loadTenant(tx *store.Tx, uid tenant.UID) (owned, error) {
	t := owned{uid: uid}
	found, err := tx.One("SELECT tenant_id, state, epoch, suspended, policy FROM tenant WHERE uid = ?", func(r *store.Row) error {
		t.id = tenant.ID(r.ColumnText(0))
		t.state = tenant.PlacementState(r.ColumnText(1))
		t.epoch = tenant.Epoch(r.ColumnInt64(2))
		t.suspended = r.ColumnInt64(3) != 0
		t.policy = tenant.Revision(r.ColumnInt64(4))
		return nil
	}, string(uid))
	if err != nil {
		return owned{}, err
	}
	if !found || t.state == tenant.Deleting || t.state == tenant.Deleted {
		return owned{}, fault.Unknown()
	}
	return t, nil
}

func roleOf(tx *store.Tx, uid tenant.UID, user string) (tenant.Role, error) {
	var role tenant.Role
	_, err := tx.One("SELECT role FROM member WHERE uid = ? AND user_id = ?", func(r *store.Row) error {
		role = tenant.Role(r.ColumnInt64(0))
		return nil
	}, string(uid), user)
	return role, err
}

// asMember loads the tenant and the role of the member who asks. To anyone else
// the tenant does not exist.
func asMember(tx *store.Tx, c *raftfsm.Command, uid tenant.UID) (owned, tenant.Role, error) {
	t, err := loadTenant(tx, uid)
	if err != nil {
		return owned{}, 0, err
	}
	role, err := roleOf(tx, uid, c.Actor)
	if err != nil {
		return owned{}, 0, err
	}
	if role == 0 {
		return owned{}, 0, fault.Unknown()
	}
	if t.suspended {
		return owned{}, 0, ErrSuspended
	}
	return t, role, nil
}

// mayGrant reports whether a member of role actor may give or take the role
// other.
func mayGrant(actor, other tenant.Role) bool {
	if other == tenant.Owner {
		return actor.Can(tenant.ManageOwners)
	}
	return actor.Can(tenant.ManageMembers)
}

// keepsOwner refuses the loss of the last owner; call it when the change is made.
func keepsOwner(tx *store.Tx, uid tenant.UID) error {
	found, err := tx.One("SELECT 1 FROM member WHERE uid = ? AND role = ? LIMIT 1", nil, string(uid), int(tenant.Owner))
	if err != nil {
		return err
	}
	if !found {
		return ErrLastOwner
	}
	return nil
}

// nextRevision takes the next policy revision of a tenant.
func nextRevision(tx *store.Tx, t owned) (tenant.Revision, error) {
	next := t.policy + 1
	_, err := tx.Exec("UPDATE tenant SET policy = ? WHERE uid = ?", uint64(next), string(t.uid))
	return next, err
}

func count(tx *store.Tx, sql string, args ...any) (int64, error) {
	var n int64
	_, err := tx.One(sql, func(r *store.Row) error { n = r.ColumnInt64(0); return nil }, args...)
	return n, err
}
