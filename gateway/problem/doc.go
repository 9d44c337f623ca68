// Package problem is the only writer of application/problem+json (RFC 9457) and
// its inverse: gateway, cell and clients all speak errors through it, so a
// refusal made inside a replicated transaction reaches the client as the same
// *fault.Error that it was.
//
// On the wire a problem is one JSON object:
//
//	{"type":"version-mismatch","title":"Precondition failed","status":412,
//	 "detail":"...","requestId":"...","currentVersion":5}
//
// type is the bare slug, title follows from the kind, status from the kind's row
// in one table. Extension members come last, in the order of their names. A 404
// never has detail or extension members: foreign and unknown are the same bytes.
// Internal never shows more than the request id.
//
// Two kinds share a status with Unavailable; the header Celld-Kind tells them
// apart between processes, and the gateway does not pass it on.
//
// The package keeps no state, starts no goroutine, takes no lock. It is a leaf:
// of the project it imports store/fault alone.
package problem
