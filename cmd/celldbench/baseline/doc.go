// Package baseline is what a machine does at best, to hold celld against: a bare
// net/http handler for reads; for writes Raft alone, three members with the log
// store, the transport and the settings of a cell and a state machine that does
// nothing.
//
// Every goroutine belongs to a server or a member that Close ends and waits for.
package baseline
