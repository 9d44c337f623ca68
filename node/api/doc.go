// Package api is what a cell answers on its inner port: the tenant-scoped routes
// of the public API (design section 7) for gateways that come with a signed
// context, and a few internal routes, of which those that change members need an
// operator's context. Routes lists the whole surface, with each
// route's action.
//
// A request passes, in this order: the request id; the signed context (package
// gateway/identity), outside the router; the route; the path's tenant, which
// must be the context's; the policy revision, which must not be below the
// highest seen for this actor in this tenant; the role's right to the route's
// action. Only then a handler runs. It gets the scope as a value and nothing
// else about the caller: every other header about identity is ignored.
//
// Writes become one command each (package raftfsm/cellfsm), with an idempotency
// key whose operation is the route's name and whose hash is over the command's
// body: path ids and expected version are in it. The answer is rendered from the
// command's result, for the role that the caller has now.
//
// Reads are linearizable by default and then answered by the leader alone.
// Celld-Min-Index lets any replica answer that has applied that index;
// Celld-Consistency: stale lets any replica answer. Every 2xx answer carries
// Celld-Index.
//
// One record comes from the node's cache (package records) where that has it, after
// the same admission as a read of the file.
//
// Decoding is strict: unknown and repeated fields, wrong types, trailing data,
// bad UTF-8, control characters, unknown or repeated query parameters are 400.
// Cursors are sealed with a secret of the tenant's and bound to tenant, route,
// filters and order.
//
// Goroutines: none of its own. Locks: revisions.mu, held for a map access.
//
// Bytes on the wire: JSON and application/problem+json; cursors, of which the
// first byte is the version (cursor.go); Celld-Index is <epoch>.<log index>.
package api
