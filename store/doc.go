// Package store keeps replicated state in SQLite files: one file for each
// tenant and one for each Raft group's own state.
//
// A File has one writer connection, used by Update under the file's lock, and a
// few reader connections, used by View and Scan. Update runs its function inside
// BEGIN IMMEDIATE; the file's control row (applied index, sequence, last time,
// and for a tenant its uid, epoch and state) is read in that transaction,
// changed as a value and written back with the data, so both become visible
// together. A transaction that changed nothing is rolled back.
//
// Durability: SQLite runs in WAL mode with synchronous=NORMAL, because the Raft
// log is the write-ahead log of record. A power cut may take the latest commits
// of a file, never their order; entries above the file's applied index are
// applied again from the log. Sync makes everything committed so far durable
// and comes before the log is cut.
//
// On disk: a file's path, "-wal" and "-shm" beside it. No other code opens a
// database file: closing any descriptor of it would drop SQLite's locks. The
// package switches SQLite to locks that survive that, but the rule stands.
//
// Locks: Handles.mu, then File.mu (writer), then File.rmu (free readers); the
// slots semaphore is taken first of all and never nested. Goroutines: Handles
// owns one, which checkpoints.
package store
