package gateway

import (
	"net/http"

	"celld/gateway/directory"
	"celld/store/fault"
	"celld/store/tenant"
)

func (g *Gateway) listMembers(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	members, err := g.dir.Members(r.Context(), x.access.Placement.UID)
	if err := firstOf(err, g.dir.Fresh()); err != nil {
		return err
	}
	return x.answer(mapped(members, memberOf), false)
}

// userInPath is the path's user. A malformed id is an unknown one.
func (x *exchange) userInPath() (tenant.UserID, error) {
	id := x.vars["user"]
	if !tenant.ValidID(id) {
		return "", fault.Unknown()
	}
	return tenant.UserID(id), nil
}

func (g *Gateway) setRole(x *exchange, r *http.Request) error {
	user, err := x.userInPath()
	if err != nil {
		return err
	}
	var in struct {
		Role string `json:"role"`
	}
	if err := decode(x, r, &in); err != nil {
		return err
	}
	role, err := tenant.ParseRole(in.Role)
	if err != nil {
		return err
	}
	key, err := x.key(r, user, in.Role)
	if err != nil {
		return err
	}
	member, replayed, err := g.dir.SetRole(r.Context(), x.by(), key, x.access.Placement.UID, user, role)
	if err != nil {
		return err
	}
	return x.answer(memberOf(member), replayed)
}

// removeMember lets anyone leave; others are removed by whoever manages members.
// The directory decides about owners, at the moment of the change.
func (g *Gateway) removeMember(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	user, err := x.userInPath()
	if err != nil {
		return err
	}
	if user.Fold() != x.caller.User.Fold() && !x.access.Role.Can(tenant.ManageMembers) {
		return fault.New(fault.Forbidden, "forbidden", "the role %s may not remove others; ask an owner or admin of the tenant", x.access.Role)
	}
	key, err := x.key(r, user)
	if err != nil {
		return err
	}
	replayed, err := g.dir.RemoveMember(r.Context(), x.by(), key, x.access.Placement.UID, user)
	if err != nil {
		return err
	}
	return x.done(replayed)
}

func (g *Gateway) createInvite(x *exchange, r *http.Request) error {
	var in struct {
		Email string `json:"email"`
		Role  string `json:"role"`
	}
	if err := decode(x, r, &in); err != nil {
		return err
	}
	if err := text("email", in.Email, maxEmail); err != nil {
		return err
	}
	role, err := tenant.ParseRole(in.Role)
	if err != nil {
		return err
	}
	key, err := x.key(r, in.Email, in.Role)
	if err != nil {
		return err
	}
	made, replayed, err := g.dir.Invite(r.Context(), x.by(), key, x.access.Placement.UID, directory.NewInvite{Email: in.Email, Role: role})
	if err != nil {
		return err
	}
	out := inviteOf(made.Invite)
	out.Token = made.Token
	return x.answer(out, replayed)
}

func (g *Gateway) listInvites(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	invites, err := g.dir.Invites(r.Context(), x.access.Placement.UID)
	if err := firstOf(err, g.dir.Fresh()); err != nil {
		return err
	}
	return x.answer(mapped(invites, inviteOf), false)
}

func (g *Gateway) revokeInvite(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	id := x.vars["invite"]
	if len(id) > maxToken {
		return fault.Unknown()
	}
	key, err := x.key(r, id)
	if err != nil {
		return err
	}
	replayed, err := g.dir.RevokeInvite(r.Context(), x.by(), key, x.access.Placement.UID, id)
	if err != nil {
		return err
	}
	return x.done(replayed)
}

func (g *Gateway) acceptInvite(x *exchange, r *http.Request) error {
	var in struct {
		Token string `json:"token"`
	}
	if err := decode(x, r, &in); err != nil {
		return err
	}
	if err := text("token", in.Token, maxToken); err != nil {
		return err
	}
	key, err := x.key(r, in.Token)
	if err != nil {
		return err
	}
	joined, replayed, err := g.dir.AcceptInvite(r.Context(), x.by(), key, in.Token)
	if err != nil {
		return err
	}
	return x.answer(membershipOf(joined), replayed)
}
