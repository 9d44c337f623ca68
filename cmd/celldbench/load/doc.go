// Package load makes load over HTTP and measures it.
//
// Closed is load by callers who each send their next request when the last one was
// answered: it finds out how much a server can do. Open is load that comes at
// times fixed beforehand, whatever the server does: it finds out how long users
// would wait. There the latency of a request counts from the moment at which it
// was to start, so that a server that stands still for a second is charged for
// every request that would have come in that second.
//
// Invariants: what is in flight is bounded by the number of callers. A request
// that is not answered as it should be is counted as failed and never among the
// latencies. A request of an open load that finds all callers busy and as many
// requests waiting is not made, and counted.
//
// Every goroutine belongs to one Run, which waits for it. Callers are used by one
// goroutine each; the owner closes them.
package load
