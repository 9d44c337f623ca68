package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/gateway/problem"
	"celld/store/fault"
)

// servePublic is the front door. The order is the whole of its security: the
// request id, the bounds, the path's hygiene, then authentication for all that is
// not named as open, and only then the router.
func (g *Gateway) servePublic(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, begun: g.cfg.Clock()}
	x.requestID = problem.EnsureRequestID(w.Header(), r.Header)
	g.metrics.inFlight.Inc()
	defer g.finish(x, r)
	if err := g.pass(x, r); err != nil {
		x.refuse(r, err)
	}
}

// finish logs and counts, and turns a panic into an answer.
func (g *Gateway) finish(x *exchange, r *http.Request) {
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			g.observe(x, r)
			panic(http.ErrAbortHandler) // the connection is to be cut
		}
		x.refuse(r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
	g.observe(x, r)
}

func (g *Gateway) pass(x *exchange, r *http.Request) error {
	if err := headerBounds(r.Header); err != nil {
		return err
	}
	if err := cleanPath(r); err != nil {
		return err
	}
	if route, ok := g.open[r.Method+" "+r.URL.Path]; ok {
		x.route = route
		return route.serve(g, x, r)
	}
	if err := g.authenticate(x, r); err != nil {
		return err
	}
	user := x.caller.User
	if err := g.users.enter(user); err != nil {
		return err
	}
	defer g.users.leave(user)
	route, vars, err := g.paths.find(x.Header(), r)
	if err != nil {
		return err
	}
	x.route, x.vars = route, vars
	return g.serve(x, r)
}

// serve answers a route that is not open.
func (g *Gateway) serve(x *exchange, r *http.Request) error {
	if x.stale && x.route.Target != Cell {
		return directory.ErrNotFresh
	}
	named := x.route.Action != 0
	if named {
		if err := g.authorize(x, r); err != nil {
			return err
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		if err := g.receive(x, r); err != nil {
			return err
		}
	}
	if !named {
		return x.route.serve(g, x, r)
	}
	uid := x.access.Placement.UID
	pair := share{uid, x.caller.User}
	if err := g.shares.enter(pair); err != nil {
		return err
	}
	defer g.shares.leave(pair)
	if err := g.tenants.enter(uid); err != nil {
		return err
	}
	defer g.tenants.leave(uid)
	return x.route.serve(g, x, r)
}

// receive takes the whole body in and then looks once more at who calls and what
// they may do: a body may be long in coming, and what has been answered about its
// sender meanwhile holds. Until it is here it takes no place of the tenant's.
func (g *Gateway) receive(x *exchange, r *http.Request) error {
	raw, err := body.Read(x, r, body.Limit)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	if err := g.authenticate(x, r); err != nil || x.route.Action == 0 {
		return err
	}
	return g.authorize(x, r)
}

// authenticate finds out who calls. A gateway that is not fresh knows only who
// called might have been somebody; that is enough for a read that was explicitly
// asked to be stale, and authorize lets nothing else pass.
func (g *Gateway) authenticate(x *exchange, r *http.Request) error {
	token, ok := bearer(r.Header)
	if !ok {
		return directory.ErrUnauthenticated
	}
	var err error
	x.caller, err = g.dir.Authenticate(r.Context(), token)
	if err != nil && g.cfg.StaleReads && wantsStale(r) && errors.Is(err, directory.ErrNotFresh) {
		x.stale = true
		x.caller, err = g.dir.AuthenticateStale(r.Context(), token)
	}
	return err
}

// bearer takes the token from the one Authorization header.
func bearer(h http.Header) (string, bool) {
	given := h["Authorization"]
	if len(given) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(given[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 512 {
		return "", false
	}
	return token, true
}

const (
	headerConsistency = "Celld-Consistency"
	headerMinIndex    = "Celld-Min-Index"
	headerIdempotency = "Idempotency-Key"
)

// wantsStale reports whether a read was asked for as stale.
func wantsStale(r *http.Request) bool {
	given := r.Header[headerConsistency]
	return len(given) == 1 && given[0] == "stale" && r.Method == http.MethodGet
}

// authorize looks the caller's membership in the path's tenant up and checks the
// role's right to the route's action: the path is a request, not a proof. It runs
// again for each retry.
func (g *Gateway) authorize(x *exchange, r *http.Request) error {
	id := x.vars["tenant"]
	var err error
	if !x.stale {
		x.access, err = g.dir.Access(x.caller.User, id)
		x.stale = err != nil && g.cfg.StaleReads && x.route.Target == Cell && wantsStale(r) && errors.Is(err, directory.ErrNotFresh)
	}
	if x.stale {
		x.access, err = g.dir.AccessStale(x.caller.User, id)
	}
	switch {
	case err != nil && fault.Of(err) == fault.NotFound:
		g.metrics.denied.Inc()
		return fault.Unknown()
	case err != nil:
		return err
	case x.access.Placement.Suspended:
		return directory.ErrSuspended
	case !x.access.Role.Can(x.route.Action):
		return fault.New(fault.Forbidden, "forbidden", "the role %s may not do this; ask an owner or admin of the tenant", x.access.Role)
	}
	return nil
}
