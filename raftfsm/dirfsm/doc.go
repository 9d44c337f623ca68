// Package dirfsm is every command that the directory applies, and the schema of
// the file that it applies them to.
//
// The directory is the gateways' Raft group. Its state is one SQLite file,
// directory.db, which every gateway holds a replica of: users, the hashes of
// their credentials, tenants with their placements, memberships, invites, cells,
// moves and the audit. Package gateway/directory proposes the commands and reads the
// file; nothing else does either.
//
// Invariants:
//   - A tenant's id and uid are never used again: its row stays after deletion.
//     Ids and e-mail addresses are unique ignoring case; both are ASCII, so that
//     case does not depend on a Unicode version.
//   - A tenant's epoch counter and its policy counter only grow. Each change of
//     a membership takes the next policy revision, so that a member who is added
//     again stands above everything issued before.
//   - A tenant always keeps one owner.
//   - Authority is that of the moment of apply: a command that a member asks for
//     is checked against the member's role in this very file, after every
//     command before it in the log. What the gateway checked earlier is a
//     courtesy.
//   - Only hashes of secrets are in the log and in the file. Random values are
//     made by the proposer and travel in the command; the time is the command's.
//   - A tenant takes part in one move, and its state is moving until that is over.
//     What an event makes of a move is the business of package gateway/moves; here
//     the decision, the placement and the cells' counts change in one entry.
//   - Each command that had an effect leaves one audit row in the same
//     transaction; only pruning and the rounds of a copy leave none.
//
// The actor of a command is a user's id, "operator:<name>" or "gateway:<name>".
// An id holds no colon, so no user can look like one of the others.
//
// The package has no goroutines. A command that can make something remembered
// about the file wrong calls the function given to Table with the sequence that
// the file will have when the command is committed, before it is; a reader that
// notes the file's sequence before it reads can tell by it whether what it kept
// is still right.
//
// On the wire and in the log: bodies are CBOR arrays (raftfsm.Encode). A changed
// body is a new command with a new number.
package dirfsm
