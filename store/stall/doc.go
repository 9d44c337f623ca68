// Package stall notices calls to a disk that do not return. Nobody can call such
// a call off, and whoever waits for it waits for ever; so what can be done is to
// say so and to let others go on.
//
// A Watch counts looks, not time: it looks at the calls under way five times
// within its limit, and a call that was there at five looks in a row hangs. A look
// that comes much later than it should does not count: then it was the process
// that stood still, or its machine, and not the disk. So a process that was
// stopped for an hour, or a suspended machine, reports nothing when it goes on.
//
// Calls that have megabytes to move, like a checkpoint, have more patience
// (Long).
//
// # Goroutines and locks
//
// A Watch owns one goroutine, which Close waits for, and no other for a call.
// Its lock is a leaf. A nil *Watch watches nothing.
package stall
