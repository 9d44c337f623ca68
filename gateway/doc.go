// Package gateway is the front door and the operators' door of a platform: it
// authenticates, finds the caller's membership, signs a context and passes the
// request on to the tenant's cell; what concerns users, tenants and members it
// answers from the directory (package directory) itself. It stores nothing of its
// own but the directory's replica.
//
// # The way of a request
//
// Routes is the whole public surface, one line a route. A request passes, in this
// order: request id; bounds of the headers; hygiene of the path; unless its method
// and path are named as public, authentication, which wraps the router; the bound
// on the user's requests; the router (gorilla/mux, which never redirects); the
// caller's membership in the path's tenant and the role's right to the route's
// action; the body, whole, and after it authentication, membership and right once
// more, because a body may be long in coming; the bounds on the user's share of the
// tenant's places and on the tenant's requests.
// Only then its handler runs.
//
// Invariants:
//   - The path's tenant is a request, not a proof. Not a member, unknown, deleted,
//     malformed: the same 404, byte for byte but for the request id. A cell's 404
//     is written by the gateway too.
//   - Of a client's headers only a short list goes on to a cell, and of a cell's
//     only a short list comes back. Whatever a client says about identity is left
//     behind.
//   - A request is answered only while the directory is fresh (section 8 of the
//     design); with StaleReads a read that asks for it may be stale.
//   - A write is sent again only under one idempotency key, the client's or one
//     made here, and each attempt looks membership and placement up again. Once an
//     attempt may have had an effect, the answer is outcome-unknown unless a later
//     attempt tells.
//   - Attempts, their time, bodies, headers, requests of a tenant and of a user,
//     log-ins and everything that is remembered are bounded.
//
// The operator API has its own listener, table and credentials (operator.go).
// Every call that changes something is audited with the change; every other one
// leaves a row before it is answered; refused credentials are in the log.
//
// # Goroutines and locks
//
// Open starts the inner mux, three HTTP servers, the resumer of half-made tenants
// and a watch over the directory; a node that is asked has a hop.Client; Close waits for all of them, in the order that
// it documents. Locks guard maps and are held for an access: gate.mu, throttle.mu,
// cells.mu (also while one cell's record is built). A request's exchange belongs
// to its goroutine.
//
// # On the wire
//
// JSON and problem+json in public (openapi.yaml is the description, and tests hold
// both against each other); between gateway and cell the same paths in the
// frames of package hop over mutual TLS, or a call in the same process, with the
// signed context in Celld-Context. The inner port serves the directory's calls and Raft traffic.
package gateway
