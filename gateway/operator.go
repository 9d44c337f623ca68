package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"celld/gateway/directory"
	"celld/gateway/problem"
	"celld/store/fault"
)

// operatorRoute is one line of the operator API. It has its own listener, its own
// credentials and its own table, so that no slip can put one of its routes into
// the public API.
type operatorRoute struct {
	name    string // also the action in the audit of a call that changes nothing
	method  string
	pattern string
	open    bool // without the token: what monitoring asks for
	changes bool // the directory audits it with the change itself
	serve   func(*Gateway, *operation) error
}

func operatorRoutes() []operatorRoute {
	const get, head, post = http.MethodGet, http.MethodHead, http.MethodPost
	return []operatorRoute{
		{"health", get, "/healthz", true, false, (*Gateway).operatorHealth},
		{"ready", get, "/readyz", true, false, (*Gateway).operatorReady},
		{"head-health", head, "/healthz", true, false, (*Gateway).operatorHealth},
		{"head-ready", head, "/readyz", true, false, (*Gateway).operatorReady},
		{"metrics", get, "/metrics", true, false, (*Gateway).operatorMetrics},
		{"create-user", post, "/users", false, true, (*Gateway).operatorCreateUser},
		{"create-token", post, "/users/{user}/tokens", false, true, (*Gateway).operatorCreateToken},
		{"list-tokens", get, "/users/{user}/tokens", false, false, (*Gateway).operatorListTokens},
		{"revoke-token", http.MethodDelete, "/users/{user}/tokens/{token}", false, true, (*Gateway).operatorRevokeToken},
		{"create-tenant", post, "/tenants", false, true, (*Gateway).operatorCreateTenant},
		{"list-tenants", get, "/tenants", false, false, (*Gateway).operatorListTenants},
		{"show-tenant", get, "/tenants/{tenant}", false, false, (*Gateway).operatorShowTenant},
		{"verify-tenant", post, "/tenants/{tenant}/verifications", false, false, (*Gateway).operatorVerify},
		{"show-verification", get, "/tenants/{tenant}/verifications/{verification}", false, false, (*Gateway).operatorShowVerification},
		{"verify-tenant-now", get, "/tenants/{tenant}/replicas", false, false, (*Gateway).operatorReplicas},
		{"suspend-tenant", post, "/tenants/{tenant}/suspend", false, true, (*Gateway).operatorSuspend},
		{"resume-tenant", post, "/tenants/{tenant}/resume", false, true, (*Gateway).operatorResume},
		{"put-cell", post, "/cells", false, true, (*Gateway).operatorPutCell},
		{"list-cells", get, "/cells", false, false, (*Gateway).operatorListCells},
		{"show-cell", get, "/cells/{cell}", false, false, (*Gateway).operatorShowCell},
		{"add-node", post, "/cells/{cell}/nodes", false, true, (*Gateway).operatorAddNode},
		{"remove-node", post, "/cells/{cell}/nodes/{node}/remove", false, true, (*Gateway).operatorRemoveNode},
		{"list-audit", get, "/audit", false, false, (*Gateway).operatorAudit},
	}
}

// operation is one call of the operator API.
type operation struct {
	w     *exchange
	r     *http.Request
	route *operatorRoute
	vars  map[string]string
	by    directory.Actor
}

// serveOperator is the operator API's door: bounds, hygiene, the token, the route,
// in this order, as at the front door.
func (g *Gateway) serveOperator(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, begun: g.cfg.Clock()}
	x.requestID = problem.EnsureRequestID(w.Header(), r.Header)
	r = r.WithContext(problem.ContextWithRequestID(r.Context(), x.requestID))
	o := &operation{w: x, r: r}
	defer func() {
		if p := recover(); p != nil {
			x.refuse(r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
		g.observeOperation(o)
	}()
	if err := g.operate(o); err != nil {
		x.refuse(r, err)
	}
}

func (g *Gateway) operate(o *operation) error {
	if err := headerBounds(o.r.Header); err != nil {
		return err
	}
	if err := cleanPath(o.r); err != nil {
		return err
	}
	route, vars, err := g.admin.find(o.w.Header(), o.r)
	if err != nil || !route.open {
		// Who has no token learns nothing about routes either.
		if !g.isOperator(o.r) {
			o.w.Header().Del("Allow")
			return directory.ErrUnauthenticated
		}
	}
	if err != nil {
		return err
	}
	o.route, o.vars, o.by = route, vars, directory.ByOperator("")
	return route.serve(g, o)
}

// isOperator compares hashes, so that neither content nor length of the token
// shows in the time it takes.
func (g *Gateway) isOperator(r *http.Request) bool {
	given, ok := bearer(r.Header)
	want, have := sha256.Sum256([]byte(g.cfg.OperatorToken)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], have[:]) == 1 && ok
}

// record leaves a row in the audit for a call that changes nothing. Without the
// row there is no answer.
func (g *Gateway) record(o *operation, e directory.AuditEntry) error {
	e.Action = o.route.name
	return g.dir.Record(o.r.Context(), o.by, e)
}

func (g *Gateway) observeOperation(o *operation) {
	x, name := o.w, noRoute
	if o.route != nil {
		name = o.route.name
	}
	g.metrics.admin.WithLabelValues(name, statusText(x.status)).Inc()
	level, reason := slog.LevelInfo, ""
	if x.err != nil {
		level, reason = slog.LevelWarn, fault.As(x.err).Slug
	} else if o.route != nil && o.route.open {
		level = slog.LevelDebug // asked for every few seconds
	}
	attrs := []slog.Attr{slog.String("request_id", x.requestID), slog.String("method", o.r.Method), slog.String("route", name),
		slog.Int("status", x.status), slog.Duration("took", g.cfg.Clock().Sub(x.begun)), slog.String("peer", peerOf(o.r))}
	if id := o.vars["tenant"]; id != "" {
		attrs = append(attrs, slog.String("tenant", id))
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("reason", reason), slog.Any("error", x.err))
	}
	g.cfg.Logger.LogAttrs(context.Background(), level, "operator request", attrs...)
}

// fresh returns the first error, or what Fresh says after a read.
func (g *Gateway) fresh(err error) error {
	if err != nil {
		return err
	}
	return g.dir.Fresh()
}

func (g *Gateway) operatorHealth(o *operation) error {
	return writeJSON(o.w, http.StatusOK, statusJSON{Status: "ok"})
}

func (g *Gateway) operatorReady(o *operation) error {
	if err := g.whyNotReady(); err != nil {
		return err
	}
	return writeJSON(o.w, http.StatusOK, statusJSON{Status: "ready"})
}

func (g *Gateway) operatorMetrics(o *operation) error {
	promhttp.HandlerFor(g.cfg.Metrics, promhttp.HandlerOpts{}).ServeHTTP(o.w, o.r)
	return nil
}
