// Package failpoint names the steps after which a crash is worth trying, and ends
// the process at one of them when a test asks for it.
//
// In a normal build Here does nothing and costs nothing. A program built with the
// tag failpoints looks for a file named like the step in the folder that the
// environment variable FAILPOINTS names; if it can remove that file, it kills
// itself with SIGKILL on the spot. So of all processes that share the folder
// exactly one dies, and whoever put the file there sees by its absence that the
// step was reached. A file named like the step, "@" and a process id is for that
// process alone.
//
// Names are part of what tests and docs/operations.md speak of: they are only
// added to.
package failpoint

// Variable names the folder in the environment.
const Variable = "FAILPOINTS"

// Name is a step.
type Name string

// The steps, in the order in which an entry, a snapshot and a replica that was
// away go through them.
const (
	LogStored         Name = "log-stored"         // entries are on the log's disk, nobody knows yet
	ApplyBegun        Name = "apply-begun"        // a batch is about to be applied
	ApplyBetween      Name = "apply-between"      // some of a batch's targets are applied
	ApplyDone         Name = "apply-done"         // a batch is applied, nobody has an answer
	CommitBegun       Name = "commit-begun"       // before a COMMIT of SQLite's
	CommitDone        Name = "commit-done"        // after it
	CheckpointBetween Name = "checkpoint-between" // between the two passes of a checkpoint
	SnapshotSynced    Name = "snapshot-synced"    // files are durable, the manifest is not written
	LogCut            Name = "log-cut"            // a snapshot is in place, the log behind it is not cut
	InstallBegun      Name = "install-begun"      // a leader's snapshot is in place, nothing of it is installed
	InstallRecorded   Name = "install-recorded"   // absences are durable, the group's own file is the old one
	InstallPlaced     Name = "install-placed"     // everything is installed, Raft does not know
	FetchStaged       Name = "fetch-staged"       // a fetched file is there and sound, and not caught up
	FetchDurable      Name = "fetch-durable"      // it is caught up and durable, the old one still counts
	FetchSwitched     Name = "fetch-switched"     // it counts, the old one is still there
)

// Names lists all of them.
func Names() []Name {
	return []Name{
		LogStored, ApplyBegun, ApplyBetween, ApplyDone, CommitBegun, CommitDone, CheckpointBetween,
		SnapshotSynced, LogCut, InstallBegun, InstallRecorded, InstallPlaced, FetchStaged, FetchDurable, FetchSwitched,
	}
}
