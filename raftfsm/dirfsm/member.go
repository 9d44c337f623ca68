package dirfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func insertMember(tx *store.Tx, uid tenant.UID, user string, role tenant.Role, rev tenant.Revision) error {
	_, err := tx.Exec("INSERT INTO member (uid, user_id, role, revision, added_at, changed_at) VALUES (?, ?, ?, ?, ?, ?)",
		string(uid), user, int(role), uint64(rev), tx.Now, tx.Now)
	return err
}

// SetRole changes a member's role.
type SetRole struct {
	_    struct{} `cbor:",toarray"`
	UID  tenant.UID
	User tenant.UserID
	Role tenant.Role
}

// MemberChanged is the result of SetRole, RemoveMember and AcceptInvite.
type MemberChanged struct {
	_        struct{} `cbor:",toarray"`
	UID      tenant.UID
	Tenant   tenant.ID
	User     tenant.UserID
	Role     tenant.Role // 0 when removed
	Revision tenant.Revision
}

func (h handlers) setRole(tx *store.Tx, c *raftfsm.Command, b SetRole) (MemberChanged, error) {
	none := MemberChanged{}
	t, actor, err := asMember(tx, c, b.UID)
	if err != nil {
		return none, err
	}
	if !actor.Can(tenant.ManageMembers) {
		return none, errForbidden
	}
	old, err := roleOf(tx, b.UID, string(b.User))
	if err != nil {
		return none, err
	}
	if old == 0 {
		return none, fault.Unknown()
	}
	if !mayGrant(actor, old) || !mayGrant(actor, b.Role) {
		return none, errForbidden
	}
	rev, err := nextRevision(tx, t)
	if err != nil {
		return none, err
	}
	if _, err := tx.Exec("UPDATE member SET role = ?, revision = ?, changed_at = ? WHERE uid = ? AND user_id = ?",
		int(b.Role), uint64(rev), tx.Now, string(b.UID), string(b.User)); err != nil {
		return none, err
	}
	if err := keepsOwner(tx, b.UID); err != nil {
		return none, err
	}
	if err := audit(tx, c, event{"set-role", t.id, t.uid, string(b.User), old.String() + " to " + b.Role.String()}); err != nil {
		return none, err
	}
	h.touch(tx)
	return MemberChanged{UID: t.uid, Tenant: t.id, User: b.User, Role: b.Role, Revision: rev}, nil
}

// RemoveMember ends a membership: another's, or the caller's own.
type RemoveMember struct {
	_    struct{} `cbor:",toarray"`
	UID  tenant.UID
	User tenant.UserID
}

func (h handlers) removeMember(tx *store.Tx, c *raftfsm.Command, b RemoveMember) (MemberChanged, error) {
	none := MemberChanged{}
	t, actor, err := asMember(tx, c, b.UID)
	if err != nil {
		return none, err
	}
	leaving := c.Actor == string(b.User)
	if !leaving && !actor.Can(tenant.ManageMembers) {
		return none, errForbidden
	}
	old, err := roleOf(tx, b.UID, string(b.User))
	if err != nil {
		return none, err
	}
	if old == 0 {
		return none, fault.Unknown()
	}
	if !leaving && !mayGrant(actor, old) {
		return none, errForbidden
	}
	rev, err := nextRevision(tx, t)
	if err != nil {
		return none, err
	}
	if _, err := tx.Exec("DELETE FROM member WHERE uid = ? AND user_id = ?", string(b.UID), string(b.User)); err != nil {
		return none, err
	}
	if err := keepsOwner(tx, b.UID); err != nil {
		return none, err
	}
	if err := audit(tx, c, event{"remove-member", t.id, t.uid, string(b.User), old.String()}); err != nil {
		return none, err
	}
	h.touch(tx)
	return MemberChanged{UID: t.uid, Tenant: t.id, User: b.User, Revision: rev}, nil
}
