// Package node is the life of one process of a cell: its files, its member of
// the cell's Raft group, its inner port, and the order in which they start and
// stop.
//
// Start: the files are opened, then the port, then Raft, which applies what the
// log has and the files lack. The node answers tenants only when it is Ready:
// everything that was committed when it first heard from a leader is applied,
// and the cell has its key. A new cell's first leader makes the key (InitCell).
//
// Stop (Close), in this order: new requests are refused as by a node that does
// not lead, so that gateways go elsewhere; requests under way end, for at most
// drainTime; leadership is handed over; the port closes; Raft stops, after which
// nothing is applied; the files are closed, which moves their WALs into them.
// Whatever a deadline cuts short is safe: what was acknowledged is in the log.
//
// What this node lacks (absent tenants) package fetch brings back from the others,
// whom it is ready to serve meanwhile. A node with absences may be Ready: it answers
// for all other tenants, takes no snapshot, and hands leadership over.
//
// A disk that hangs (store/stall) ends the node: it hands leadership over, Close
// leaves behind what waits for the disk, and the process has to end.
//
// Goroutines, all waited for by Close otherwise: the verifier's (raftfsm/verify),
// the disk's watch, the port's mux, the HTTP server, the hop's server (gateway/hop)
// with its connections and handlers, the watcher that reports what failed, the one
// that tends the membership (tend.go), the one that removes folders of tenants that
// have left (sweep.go), and until the cell has
// its key the one that sees to that. Locks: gate.mu, a leaf.
//
// On disk below Config.Dir: raft/ (the group's own), cell.db, local.db,
// tenants/<uid>/<epoch>-<move>[.<n>]/tenant.db.
package node
