package directory

import (
	"context"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// inviteLife is how long an invite may be accepted.
const inviteLife = 7 * 24 * time.Hour

// Invite invites the holder of an e-mail address into a tenant; by members who
// manage members, and for the role owner by those who manage owners.
func (d *Directory) Invite(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, in NewInvite) (InviteCreated, bool, error) {
	none := InviteCreated{}
	if err := checkEmail(in.Email); err != nil {
		return none, false, err
	}
	if in.Role.String() == "" {
		return none, false, invalid("role", "must be viewer, member, finance, admin or owner")
	}
	text, secret, err := mint(d.cfg.Random, inviteSecret, "inv-")
	if err != nil {
		return none, false, err
	}
	made, replayed, err := propose[dirfsm.InviteCreated](ctx, d, by, key, uid, dirfsm.NumCreateInvite,
		dirfsm.CreateInvite{UID: uid, Invite: secret, Email: in.Email, Role: in.Role, Lifetime: inviteLife.Microseconds()})
	if err != nil {
		return none, false, err
	}
	return InviteCreated{Invite: Invite{ID: made.ID, Email: made.Email, Role: made.Role, InvitedBy: made.CreatedBy,
		CreatedAt: time.UnixMicro(made.CreatedAt).UTC(), ExpiresAt: time.UnixMicro(made.ExpiresAt).UTC()},
		Token: once(text, &secret, made.ID)}, replayed, nil
}

// RevokeInvite takes an open invite back; by members who manage members.
func (d *Directory) RevokeInvite(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, inviteID string) (bool, error) {
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, uid, dirfsm.NumRevokeInvite, dirfsm.RevokeInvite{UID: uid, ID: inviteID})
	return replayed, err
}

// AcceptInvite makes the user a member by an invite's token. A token that is
// malformed, unknown, revoked, used, or meant for another address is
// fault.Unknown(); one that is only too old is 409 invite-expired.
func (d *Directory) AcceptInvite(ctx context.Context, by Actor, key *raftfsm.Key, token string) (Membership, bool, error) {
	kind, hash, ok := parseSecret(token)
	if !ok || kind != inviteSecret {
		return Membership{}, false, fault.Unknown()
	}
	made, replayed, err := propose[dirfsm.MemberChanged](ctx, d, by, key, "", dirfsm.NumAcceptInvite,
		dirfsm.AcceptInvite{User: tenant.UserID(by.name), Hash: hash[:]})
	if err != nil {
		return Membership{}, false, err
	}
	// What is shown is what is: after a removal the tenant is unknown to the user.
	m, found, err := d.membershipOf(made.UID, made.User)
	if err == nil && !found {
		err = fault.Unknown()
	}
	return m, replayed, err
}

func (d *Directory) membershipOf(uid tenant.UID, user tenant.UserID) (m Membership, found bool, err error) {
	_, err = d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One("SELECT "+membershipColumns+" FROM member JOIN tenant USING (uid) WHERE member.uid = ? AND member.user_id = ?",
			func(r *store.Row) error { m = membership(r); return nil }, string(uid), string(user))
		return err
	})
	return m, found, err
}

// SetRole changes a member's role; by members who manage members, and to or from
// owner by those who manage owners. 409 last-owner.
func (d *Directory) SetRole(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, user tenant.UserID, role tenant.Role) (Member, bool, error) {
	if role.String() == "" {
		return Member{}, false, invalid("role", "must be viewer, member, finance, admin or owner")
	}
	_, replayed, err := propose[dirfsm.MemberChanged](ctx, d, by, key, uid, dirfsm.NumSetRole, dirfsm.SetRole{UID: uid, User: user, Role: role})
	if err != nil {
		return Member{}, false, err
	}
	var m Member
	found := false
	_, err = d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One("SELECT "+memberColumns+" FROM member JOIN user USING (user_id) WHERE uid = ? AND member.user_id = ?",
			func(r *store.Row) error { m = member(r); return nil }, string(uid), string(user))
		return err
	})
	if err == nil && !found {
		err = fault.Unknown() // removed since
	}
	return m, replayed, err
}

// RemoveMember ends a membership: another's, by members who manage members and
// for an owner by those who manage owners, or one's own. When it has answered,
// no gateway admits the user. 409 last-owner.
func (d *Directory) RemoveMember(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, user tenant.UserID) (bool, error) {
	_, replayed, err := propose[dirfsm.MemberChanged](ctx, d, by, key, uid, dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid, User: user})
	return replayed, err
}

const memberColumns = "member.user_id, user.email, user.name, member.role, member.revision, member.added_at"

func member(r *store.Row) Member {
	return Member{User: tenant.UserID(r.ColumnText(0)), Email: r.ColumnText(1), Name: r.ColumnText(2),
		Role: tenant.Role(r.ColumnInt64(3)), Revision: tenant.Revision(r.ColumnInt64(4)), Since: micros(r, 5)}
}

// Members lists a tenant's members by user id; there are at most 1,000.
func (d *Directory) Members(ctx context.Context, uid tenant.UID) ([]Member, error) {
	var out []Member
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query("SELECT "+memberColumns+" FROM member JOIN user USING (user_id) WHERE uid = ? ORDER BY member.user_id",
			func(r *store.Row) error { out = append(out, member(r)); return nil }, string(uid))
	})
	return out, err
}

// Invites lists a tenant's open invites, oldest first; there are at most 1,000.
func (d *Directory) Invites(ctx context.Context, uid tenant.UID) ([]Invite, error) {
	var out []Invite
	now := d.clock.Now().UnixMicro()
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query(`SELECT invite_id, email, role, created_by, created_at, expires_at FROM invite
			WHERE uid = ? AND expires_at > ? ORDER BY created_at, invite_id`, func(r *store.Row) error {
			out = append(out, Invite{ID: r.ColumnText(0), Email: r.ColumnText(1), Role: tenant.Role(r.ColumnInt64(2)),
				InvitedBy: r.ColumnText(3), CreatedAt: micros(r, 4), ExpiresAt: micros(r, 5)})
			return nil
		}, string(uid), now)
	})
	return out, err
}
