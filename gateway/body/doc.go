// Package body reads what clients send, strictly: JSON bodies and query
// parameters. Gateway and cell share it, so that both have one idea of what is
// malformed.
//
// Refused as malformed (400): anything that is not exactly one JSON object,
// unknown members, members in another case, duplicate members, null, wrong
// types, invalid UTF-8, escapes that are half a surrogate pair, more than 16
// levels; in a query unknown, repeated and unparsable parameters. A body over
// the limit is 413, one that is not application/json 415. An integer that is well
// formed and does not fit is 422.
//
// The package keeps no state, starts no goroutine, takes no lock. It is a leaf:
// of the project it imports store/fault alone.
package body
