// Package cellfsm is every command that a cell applies, the schemas of the files
// that it applies them to, and the fence in front of them.
//
// A cell keeps its own state in cell.db (name, key, feature level, tenants and
// the folder of each) and every tenant in a file of its own, at
// tenants/<uid>/<epoch>-<move id>/tenant.db. Commands lists the commands, a line
// each; Space hands the files to the apply machinery of package raftfsm and is
// its guard. local.db, which is not replicated, names the tenants that are absent
// on this replica and the folders of files that were fetched.
//
// Invariants:
//   - A member's write has an effect only in a file whose control row names this
//     cell's key, the command's epoch and ACTIVE. The check is made in the
//     write's own transaction (Space.Guard); no handler can go round it.
//   - A tenant that a move holds (FROZEN) changes by MoveThaw and MoveRetire of that
//     very move alone, and both carry the directory's decision. In a cell a tenant is
//     ACTIVE, FROZEN or RETIRED (a row of cell.db and the file's control row), or it
//     arrives (IMPORTING: a record of cell.db, and nobody but the mover sees it), or it
//     is not there. DESIGN.md has each command's legal states.
//   - A command of a move is decided by cell.db alone, and has its effect in the
//     tenant's file durably before cell.db commits it (Space.touch).
//   - What a move has left is removed (Space.Sweep) only when nothing names it.
//   - A handler depends on the transaction, the command and its body alone: no
//     clock, no randomness, no order of a map. Ids come from counters in the
//     file, time from tx.Now, secrets from the command's body.
//   - Every effect leaves one audit row in its transaction, under the tenant's
//     sequence number; it is the outbox row as well. Pruning leaves none.
//   - What depends on tables that change between releases (the currency list,
//     limits on text) is checked before a command is proposed and travels in it.
//
// Bytes that outlive a release: command numbers (testdata/commands.golden),
// bodies and results (CBOR maps with integer keys; a key is never given another
// meaning), the schemas (numbered scripts, never edited after a release).
//
// Goroutines: none. Locks: a handler of the cell's own entries holds cell.db's writer
// and one slot while it takes a tenant file's; nobody takes them the other way round,
// and it never asks for Space.swap. Else: Space.swap, then the locks of package store; Space.mu
// guards the map of known tenants and is a leaf.
package cellfsm
