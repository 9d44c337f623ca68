// Package store keeps replicated state in SQLite files: one file for each
// tenant and one for each Raft group's own state.
//
// A File has one writer connection, used by Update under the file's lock, and a
// few reader connections. Update runs its function inside BEGIN IMMEDIATE; the
// file's control row (applied index, sequence, last time, and for a tenant its
// uid, epoch and state) is a value that the function changes and that is written
// back with the data, so both become visible together. A transaction that
// changed nothing is rolled back.
//
// The Raft log is the write-ahead log of record, so no commit is owed for each
// update: with write-behind a transaction stays open over many of them and
// commits by age, by count, by size, and before everything that looks at the file
// from outside of it: a scan, a copy, a digest, a sync, closing. Short reads of a file
// with an open transaction run on the writer's connection, between two updates.
// Long work in the background (a digest, a copy) reads one state from a Pin, piece
// by piece, and holds a slot only while it reads. Who copies a file while it is being
// written (package ship) has a Pin that keeps the WAL as well, up to a size.
//
// Memory: the pages that an open transaction changed stay in memory. A file's is
// committed at 4 MiB of them or 2048 commands, and the files of one Handles hold
// 64 MiB together, all by an estimate that is never too low by much: above half of
// that the oldest commit before their time, above all of it each update commits
// itself. Beside that a writer keeps 1 MiB of unchanged pages and each of up to two
// readers 0.5 MiB, all of it only if the file is as large.
//
// Durability: SQLite runs in WAL mode with synchronous=NORMAL. A crash takes the
// open transaction, and a power cut may take the latest commits of a file, never
// their order; entries above the file's applied index are applied again from the
// log. Sync makes all updates so far durable and comes before the log is cut.
//
// On disk: a file's path, "-wal" and "-shm" beside it. No other code opens a
// database file: closing any descriptor of it would drop SQLite's locks. The
// package switches SQLite to locks that survive that, but the rule stands.
//
// Descriptors: all files of a process share one budget, Descriptors. A file holds
// three, each reader two; a short read opens no reader as long as the writer is free.
// At most 4,096 files are open in a process (0.14 MiB each).
//
// Locks: a scan's place, Handles.mu, then File.mu (writer) or Pin.mu, then a slot,
// then File.rmu (free readers), then Descriptors' own; who holds a slot waits for no
// writer and closes no other file. A commit ends a pin that the WAL has outgrown by
// trying its lock, never by waiting. Goroutines:
// Handles owns one that checkpoints and, with write-behind, one that commits.
package store
