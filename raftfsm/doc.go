// Package raftfsm replicates commands into SQLite files by Raft. It knows the
// envelope of a command, the table of handlers, the order in which every command
// is checked and applied, proposing, reading, snapshots and the network between
// members; it knows nothing of what the commands mean.
//
// # Invariants
//
//   - A success answered by Propose is applied here, and its entry is fsynced on
//     a majority.
//   - A command's effect, its key row and the file's applied index become visible
//     in one transaction. Entries at or below the applied index are skipped.
//   - A refusal (a *fault.Error of guard or handler, of any kind but Internal and
//     Unavailable) leaves nothing: no row, no index, no sequence, no key.
//   - Any other error is a local failure: the member applies nothing more, its
//     Raft traffic is cut and Group.Failed delivers the error. Its owner closes
//     the group and ends the process.
//   - Apply depends on the log and the files alone. At is stamped by the proposer
//     from Config.Clock; time within a file never goes back.
//   - ErrNotLeader, ErrBusy, room.ErrFull and kind TooLarge mean that nothing took effect.
//     ErrUnknown means that the command may yet take effect: only a retry under
//     the same key tells.
//   - ReadIndex counts only answers to requests sent after the commit index was
//     sampled, in the leader's own term, once an entry of that term was applied.
//   - Raft traffic reaches the member that it is meant for, by id, or nobody.
//   - A wiped member does not start under its old id, a member does not start in
//     another's folder or with an own file that is behind its own snapshot.
//   - The log is cut only behind durable files, and the log of a member that lacks
//     a target's file not at all: everything above its newest snapshot is there.
//
// # Applying
//
// A batch's commands are grouped by target. Targets are applied in parallel, each
// in log order in one store.File.Update. A log entry is either for targets or for
// the group's own file (target ""); entries of the latter kind stand between what
// is before and after them. Each command is run as time, guard, key
// row, handler, and then key row, sequence, last time and applied index are set:
// in a savepoint, or planned (DefinePlanned, DESIGN.md), when nothing that could
// be refused comes after the first write.
//
// A mark (class Probe) has none of this. It is a moment in the log at which every
// replica looks at its file (Look): all entries up to the mark's own are in it,
// none behind. It splits what a batch has for its target in two transactions.
//
// # Snapshots and absent targets
//
// A member's own snapshot is a list of its files with their indexes. A follower
// that is too far behind is sent a list and the group's own file, and no other.
// Restore (Space.Install) marks the targets whose files are missing or behind as
// absent, durably, puts the group's own file in its place, and returns. A target is
// also absent from the moment its file turns out to be bad. The commands of an
// absent target are passed over: who waits for one is told ErrUnknown. Whoever has
// fetched a copy from another member, which holds everything up to an index of
// Group.Floor or above, gives it to Group.CatchUp, which applies what the log has
// had since and has the copy put in place between two batches.
//
// # Goroutines and locks
//
// A Group owns six goroutines beside Raft's: the proposer's gather and deliver,
// the leader's follow, readIndex's serve, the yielder's and the cutter's; one that has led owns
// another one for each other voter, which sends the heartbeats of readIndex's rounds. Close waits for all of them. Apply
// starts up to GOMAXPROCS goroutines a batch and waits for them. A Transport
// owns one that passes requests on, a Mux's Serve one for each connection in its
// handshake. fsm.mu is held while a
// batch is applied, while a snapshot is installed, for the last stretch of CatchUp,
// and to list the files and pin the group's own for a follower; the file locks of
// package store come after it. The locks of progress,
// acks, readIndex, recentLogs and conns are leaves.
//
// # Bytes
//
// A log entry is CBOR, core deterministic: [1, [command, ...]], a command being
// [number, target, at, epoch, actor, key or null, body] and a key [actor,
// operation, key, hash]. The first element is the format's version. Snapshots are
// described in manifest.go. testdata pins all of them.
//
// A member's folder holds log.db (raft-boltdb), stable.db (term, vote and whose
// folder it is; stable.db.new before it says so), snapshots/ (Raft's own store, of local and received ones) and for a
// while sent-*/ and install/.
//
// On the wire a connection is TLS 1.3 with certificates on both sides (package
// mtls); ALPN "celld-raft/<group>/<member>" carries the library's msgpack protocol,
// "http/1.1" goes to the process's HTTP server, others to whoever listens for them
// (Mux.Listen).
package raftfsm
