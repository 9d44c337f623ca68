package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// Headers that a cell's answers may carry beside those for clients.
const (
	headerLeader = "Celld-Leader"
	headerIndex  = "Celld-Index"
)

// forwarded are the only headers of a client's that a cell gets. Everything about
// identity is made by the gateway.
var forwarded = [...]string{"Accept", "Content-Type", "If-Match", headerMinIndex, headerConsistency}

// returned are the only headers of a cell's that a client gets.
var returned = [...]string{"Content-Type", "Content-Length", "Etag", "Link", "Location", "Retry-After", headerIndex, "Idempotency-Replayed"}

// refusal is an answer, or the lack of one, that the gateway acts on.
type refusal struct {
	err    *fault.Error
	leader string // the leader's name, as far as the node knows
	unsure bool   // the request may have taken effect
	half   bool   // the client has got a part of the answer
}

// errUnreachable is a node that did not answer.
var errUnreachable = &fault.Error{Kind: fault.Unavailable, Slug: "cell-unreachable", Detail: "the tenant's cell does not answer; retry"}

// try asks one node once. An answer that is the client's goes to w at once, as it
// comes; one that the gateway acts on is returned instead, and w is untouched.
func (n *node) try(ctx context.Context, r *hop.Request, w http.ResponseWriter) *refusal {
	held := relay{to: w}
	if err := n.Call(ctx, r, &held); err != nil {
		return &refusal{err: errUnreachable.Because(err), unsure: !errors.Is(err, hop.ErrNotTaken), half: held.passed()}
	}
	return held.refusal()
}

// maxProblem bounds a problem that a cell answers.
const maxProblem = 64 << 10

// acts reports whether the gateway has something to do with an answer of that
// status. 404 is among them so that a client gets the gateway's own bytes for it.
func acts(status int) bool {
	switch status {
	case http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusNotFound:
		return true
	}
	return false
}

func refused(status int, h http.Header, raw []byte) *refusal {
	e := fault.As(problem.Parse(status, h, raw))
	e.Fields = nil // only the cell's request id, which is this one's, and nothing for clients
	return &refusal{err: e, leader: h.Get(headerLeader), unsure: e.Slug == raftfsm.ErrUnknown.Slug}
}

func pass(to, from http.Header) {
	for _, name := range returned {
		if values, ok := from[name]; ok {
			to[name] = values
		}
	}
	to["Cache-Control"] = noStore
}

// noStore: what is answered depends on who asks, and on their role.
var noStore = []string{"no-store"}

// relay is the writer that a node answers into.
type relay struct {
	to     http.ResponseWriter
	header http.Header
	status int
	held   []byte
}

// Header implements http.ResponseWriter.
func (w *relay) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 8)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *relay) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if !acts(status) {
		pass(w.to.Header(), w.header)
		w.to.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *relay) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !acts(w.status) {
		return w.to.Write(b)
	}
	if len(w.held)+len(b) <= maxProblem {
		w.held = append(w.held, b...)
	}
	return len(b), nil
}

// passed reports whether the client has got something.
func (w *relay) passed() bool { return w.status != 0 && !acts(w.status) }

func (w *relay) refusal() *refusal {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !acts(w.status) {
		return nil
	}
	return refused(w.status, w.header, w.held)
}

// collected is the answer to a request of the gateway's own.
type collected struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// maxCollected bounds it.
const maxCollected = 1 << 20

// Header implements http.ResponseWriter.
func (c *collected) Header() http.Header {
	if c.header == nil {
		c.header = make(http.Header)
	}
	return c.header
}

// WriteHeader implements http.ResponseWriter.
func (c *collected) WriteHeader(status int) { c.status = status }

// Write implements http.ResponseWriter.
func (c *collected) Write(b []byte) (int, error) {
	if c.body.Len()+len(b) > maxCollected {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxCollected)
	}
	return c.body.Write(b)
}

// err is what the answer refuses, nil for a success.
func (c *collected) err() error { return problem.Parse(c.status, c.header, c.body.Bytes()) }

// memberContext is what a member's request is vouched for with.
func memberContext(x *exchange, c *cell) identity.Context {
	p := x.access.Placement
	return identity.Context{Cell: c.name, CellKey: c.key, Act: identity.ByMember, Actor: x.caller.User,
		Tenant: p.Tenant, UID: p.UID, Role: x.access.Role, Revision: x.access.Revision, Epoch: p.Epoch}
}

// provisionContext is what a gateway creates a tenant's file with.
func provisionContext(gateway string, p tenant.Placement, c *cell) identity.Context {
	return identity.Context{Cell: c.name, CellKey: c.key, Act: identity.ByProvision, Actor: tenant.UserID("gateway:" + gateway),
		Tenant: p.Tenant, UID: p.UID, Epoch: p.Epoch}
}

// verifyContext is what a gateway has a tenant's replicas compared with.
func verifyContext(gateway string, p tenant.Placement, c *cell) identity.Context {
	who := provisionContext(gateway, p, c)
	who.Act = identity.ByVerify
	return who
}
