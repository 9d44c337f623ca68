package dirfsm

import (
	"strings"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// CreateInvite invites the holder of an e-mail address into a tenant.
type CreateInvite struct {
	_        struct{} `cbor:",toarray"`
	UID      tenant.UID
	Invite   Secret
	Email    string
	Role     tenant.Role
	Lifetime int64 // microseconds
}

// InviteCreated is CreateInvite's result.
type InviteCreated struct {
	_                    struct{} `cbor:",toarray"`
	ID                   string
	Email                string
	Role                 tenant.Role
	CreatedBy            string
	CreatedAt, ExpiresAt int64
}

func createInvite(tx *store.Tx, c *raftfsm.Command, b CreateInvite) (InviteCreated, error) {
	none := InviteCreated{}
	t, actor, err := asMember(tx, c, b.UID)
	if err != nil {
		return none, err
	}
	if !mayGrant(actor, b.Role) {
		return none, errForbidden
	}
	mail := strings.ToLower(b.Email)
	if n, err := count(tx, `SELECT count(*) FROM member JOIN user USING (user_id) WHERE uid = ? AND email_fold = ?`, string(b.UID), mail); err != nil {
		return none, err
	} else if n > 0 {
		return none, errAlreadyMember
	}
	n, err := count(tx, "SELECT count(*) FROM invite WHERE uid = ? AND expires_at > ?", string(b.UID), tx.Now)
	if err != nil {
		return none, err
	}
	if n >= MaxInvites {
		return none, quota("invite-limit", "a tenant has at most %d open invites; revoke some", MaxInvites)
	}
	made := InviteCreated{ID: b.Invite.ID, Email: b.Email, Role: b.Role, CreatedBy: c.Actor, CreatedAt: tx.Now, ExpiresAt: tx.Now + b.Lifetime}
	if _, err := tx.Exec(`INSERT INTO invite (invite_id, uid, email, email_fold, role, hash, created_by, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, made.ID, string(b.UID), b.Email, mail, int(b.Role), b.Invite.Hash,
		made.CreatedBy, made.CreatedAt, made.ExpiresAt); err != nil {
		return none, taken(err)
	}
	return made, audit(tx, c, event{"invite", t.id, t.uid, made.ID, b.Role.String()})
}

var errAlreadyMember = &fault.Error{Kind: fault.Conflict, Slug: "already-member", Detail: "the user is a member already; change the role instead"}

// RevokeInvite takes an open invite back.
type RevokeInvite struct {
	_   struct{} `cbor:",toarray"`
	UID tenant.UID
	ID  string
}

func revokeInvite(tx *store.Tx, c *raftfsm.Command, b RevokeInvite) (Nothing, error) {
	t, actor, err := asMember(tx, c, b.UID)
	if err != nil {
		return Nothing{}, err
	}
	if !actor.Can(tenant.ManageMembers) {
		return Nothing{}, errForbidden
	}
	n, err := tx.Exec("DELETE FROM invite WHERE invite_id = ? AND uid = ?", b.ID, string(b.UID))
	if err != nil {
		return Nothing{}, err
	}
	if n == 0 {
		return Nothing{}, fault.Unknown()
	}
	return Nothing{}, audit(tx, c, event{"revoke-invite", t.id, t.uid, b.ID, ""})
}

// AcceptInvite makes the caller a member by an invite's secret. The caller's
// address must be the one invited, and whoever invited must still be allowed to
// give that role: an invite is no way around a later demotion. Whatever does not
// hold, the invite is unknown to this caller.
type AcceptInvite struct {
	_    struct{} `cbor:",toarray"`
	User tenant.UserID
	Hash []byte
}

func acceptInvite(tx *store.Tx, c *raftfsm.Command, b AcceptInvite) (MemberChanged, error) {
	none := MemberChanged{}
	if c.Actor != string(b.User) {
		return none, errForbidden
	}
	var id, createdBy string
	var uid tenant.UID
	var role tenant.Role
	var expires int64
	found, err := tx.One(`SELECT invite_id, uid, role, created_by, expires_at FROM invite JOIN user USING (email_fold)
		WHERE hash = ? AND user_id = ?`, func(r *store.Row) error {
		id, uid, role = r.ColumnText(0), tenant.UID(r.ColumnText(1)), tenant.Role(r.ColumnInt64(2))
		createdBy, expires = r.ColumnText(3), r.ColumnInt64(4)
		return nil
	}, b.Hash, string(b.User))
	if err != nil {
		return none, err
	}
	if !found {
		return none, fault.Unknown()
	}
	t, err := loadTenant(tx, uid)
	if err != nil {
		return none, err
	}
	inviter, err := roleOf(tx, uid, createdBy)
	if err != nil {
		return none, err
	}
	if !mayGrant(inviter, role) {
		return none, fault.Unknown()
	}
	if tx.Now >= expires {
		return none, fault.New(fault.Conflict, "invite-expired", "the invite has expired; ask for another")
	}
	if t.suspended {
		return none, ErrSuspended
	}
	if have, err := roleOf(tx, uid, string(b.User)); err != nil {
		return none, err
	} else if have != 0 {
		return none, errAlreadyMember
	}
	if err := belowTenantLimit(tx, b.User); err != nil {
		return none, err
	}
	if n, err := count(tx, "SELECT count(*) FROM member WHERE uid = ?", string(uid)); err != nil {
		return none, err
	} else if n >= MaxMembers {
		return none, quota("member-limit", "a tenant has at most %d members", MaxMembers)
	}
	return join(tx, c, t, b.User, role, id)
}

func join(tx *store.Tx, c *raftfsm.Command, t owned, user tenant.UserID, role tenant.Role, invite string) (MemberChanged, error) {
	none := MemberChanged{}
	if _, err := tx.Exec("DELETE FROM invite WHERE invite_id = ?", invite); err != nil {
		return none, err
	}
	rev, err := nextRevision(tx, t)
	if err != nil {
		return none, err
	}
	if err := insertMember(tx, t.uid, string(user), role, rev); err != nil {
		return none, err
	}
	made := MemberChanged{UID: t.uid, Tenant: t.id, User: user, Role: role, Revision: rev}
	return made, audit(tx, c, event{"accept-invite", t.id, t.uid, string(user), role.String()})
}
