package main

import "os"

// heapFloor is memory that nobody touches, so that it needs no page of the machine's,
// but counts when the collector sets its next goal. A gateway and a node live on few
// megabytes and make as many for a thousand requests: without it one collection
// follows the other. It allows garbage of at most its own size more. Whoever sets
// GOGC or GOMEMLIMIT decides for themselves.
func heapFloor() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 64<<20)
}
