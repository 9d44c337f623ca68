package gateway

import (
	"net/http"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// Bounds of texts in bodies, in bytes.
const (
	maxName     = 200
	maxEmail    = 254
	maxPassword = 1024
	maxToken    = 512
	maxRegion   = 64
)

// decode reads a directory route's body into the struct that in points to.
func decode(x *exchange, r *http.Request, in any) error {
	if err := noQuery(r); err != nil {
		return err
	}
	raw, err := body.Read(x, r, body.Limit)
	if err != nil {
		return err
	}
	return body.Decode(raw, in)
}

// noQuery refuses query parameters where a route has none.
func noQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	return body.NewQuery(r).Done()
}

// text checks a text that must be there.
func text(field, s string, max int) error {
	if s == "" {
		return fault.New(fault.Invalid, "invalid-field", "%s must be given", field).With("field", field)
	}
	return body.Text(field, s, max)
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// key is the caller's idempotency identity for the route: nil without one. What
// the payload is hashed over is given by parts, the path's ids among them.
func (x *exchange) key(r *http.Request, parts ...any) (*raftfsm.Key, error) {
	given, err := idempotencyKey(r.Header)
	if err != nil || given == "" {
		return nil, err
	}
	hash, err := raftfsm.HashOf(parts...)
	if err != nil {
		return nil, err
	}
	return &raftfsm.Key{Operation: x.route.Name, Key: given, Hash: hash}, nil
}

func (x *exchange) by() directory.Actor { return directory.ByUser(x.caller.User) }

func (g *Gateway) openSession(x *exchange, r *http.Request) error {
	var in struct {
		Email    string `json:"email"`
		Password string `json:"password"`
	}
	if err := decode(x, r, &in); err != nil {
		return err
	}
	if err := firstOf(text("email", in.Email, maxEmail), text("password", in.Password, maxPassword)); err != nil {
		return err
	}
	if err := firstOf(g.loginsByPeer.take(peerOf(r)), g.logins.take(foldEmail(in.Email))); err != nil {
		return err
	}
	s, err := g.dir.OpenSession(r.Context(), in.Email, in.Password)
	if err != nil {
		return err
	}
	return x.answer(sessionJSON{UserID: s.User, Token: s.Token, ExpiresAt: formatTime(s.ExpiresAt)}, false)
}

func (g *Gateway) closeSession(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	if err := g.dir.CloseSession(r.Context(), x.caller); err != nil {
		return err
	}
	return x.done(false)
}

func (g *Gateway) getMe(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	user, err := g.dir.User(r.Context(), x.caller.User)
	if err != nil {
		return err
	}
	of, err := g.memberships(r, x.caller.User)
	if err != nil {
		return err
	}
	return x.answer(meJSON{UserID: user.ID, Email: user.Email, Name: user.Name, CreatedAt: formatTime(user.CreatedAt),
		Memberships: mapped(of, membershipOf).Items}, false)
}

func (g *Gateway) listTenants(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	of, err := g.memberships(r, x.caller.User)
	if err != nil {
		return err
	}
	return x.answer(mapped(of, membershipOf), false)
}

// memberships are all of a user's: the directory bounds their number.
func (g *Gateway) memberships(r *http.Request, user tenant.UserID) ([]directory.Membership, error) {
	of, err := g.dir.Memberships(r.Context(), user, "", 1000)
	if err != nil {
		return nil, err
	}
	return of, g.dir.Fresh()
}
