// Command celldbench measures a whole platform on one machine through the public
// API of a gateway. It has a command for each question:
//
//	ratios   how near reads and writes come to what the machine does at best
//	rate     how long users wait at a given rate of requests
//	tenants  what ten thousand tenants cost in a cell, at rest and under load
//	history  what a request costs as a tenant grows to a million invoices
//
// The files follow it: one for each command, turns.go for work of several kinds
// that takes turns, bench.go for what all of them share. Package target is the
// platform and its tenants, load makes load, baseline is what the machine does at
// best, report prints.
//
// Only ratios of one run mean something elsewhere: everything shares the machine
// with the load generator. Nothing about time fails a run, unless --strict asks for
// it; a request that is not answered as it should be does. Every run ends by
// counting all invoices: an acknowledged write that is not found fails it.
//
// Exit codes: 0 measured, 1 failed, 2 the command line was not understood, 3 with
// --strict: a goal was missed.
//
// Every goroutine belongs to a stretch of load, which waits for it, or to a server
// that is closed before main returns. On disk: a temporary folder, which is removed
// at the end.
package main
