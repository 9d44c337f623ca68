// Command celldbench measures a whole platform on one machine: reads and writes
// through the public API of a gateway, and in the same run, by turns, what the
// machine does at best. For reads that is a bare net/http handler that answers
// the same body; for writes it is Raft alone, three members with the log store,
// the transport and the settings of a cell and a state machine that does nothing.
//
// Only ratios of one run mean something. All four kinds of work share the
// process, its cores and its load generator, and take turns in short slices, so
// that a slow minute of the machine slows all of them.
//
// The load is closed: each of c connections sends its next request when the last
// one was answered. A request that is not answered as it should be is an error;
// one error fails the run with exit code 1. Nothing is asserted about time. After
// the last slice of writes each tenant's highest invoice number must account for
// every write that was acknowledged.
//
// On the wire: HTTP/1.1 requests that are laid out before the clock starts, and a
// reader of status line, Content-Length and body; the same code for baseline and
// product. On disk: a temporary folder that is removed at the end.
//
// Every goroutine belongs to a slice of load, which waits for it, or to a server
// that is closed before main returns.
package main
