// Package moves is the pure heart of moving a tenant from one cell to another: the
// record of a move, and the function that says what an event makes of it and what
// is to be done next. It has no I/O, no clock, no goroutines and no state. The
// directory's log holds the events, apply calls Step, and whoever leads the
// directory executes what Next says. It is a leaf: it imports the vocabulary alone.
//
//	            plan                                           plan rollback
//	             |                                                  |
//	          planned                                            planned
//	             | imported                                         | copy-there
//	          copying <---------+                                   |
//	             | copied       | broke: the next attempt           |
//	        catching-up --------+                                   |
//	             | caught-up                                        |
//	             +-------------------------+------------------------+
//	                                       |
//	                                    freezing   the freeze may have been applied      - writes
//	                                       | froze: W                                      |  wait
//	                                     frozen                                            |
//	   gives-up, before any decision;      | proved                                        |
//	   broke, from freezing on             |                                               |
//	========= ABORT ===============    == COMMIT ==============================            |
//	             |                         |                                               |
//	          aborting                 committed   the destination owns the tenant         |
//	             | source-forgot,          | activated                                     -
//	             | destination-forgot  activating  it serves; the source is to retire
//	             |                         | retired
//	          aborted                  verifying
//	                                       | compared, or a finding that an operator accepts
//	                                   complete    the copy: kept, dropping, dropped
//	                                       :
//	                                  rolled-back  from verifying or complete, when a rollback is committed
//
// Invariants, each held by the model in the tests:
//   - At most one cell can accept writes.
//   - The first decision stands. COMMIT is the entry with the proof, ABORT the one
//     that gives up; there is no third way out of an undecided move.
//   - COMMIT needs the proof that the staged copy shows the freeze at the source's
//     epoch, holds all up to W, has the source's pages and is on the disks of a
//     majority. Nothing is believed that can be compared here.
//   - What may have been done at a cell is logged before it is asked for: freezing
//     before the freeze, dropping before the drop. A rollback that is planned finds
//     the old copy, or is refused.
//   - After a freeze was asked for there is no second copy: a break is ABORT.
//   - An aborted move is over when both cells hold its terminal record, so that
//     nothing of it that comes late has an effect.
//   - An event of another move, epoch, executor's term or attempt changes nothing,
//     and neither does a repetition.
//   - From every state a good end can be reached without any further fault: complete
//     or aborted, one cell active, the one that the directory names.
//
// A rollback is a move of its own, with an id and an epoch of its own. It skips the
// copying, because its copy is there; its freeze is refused if the tenant has been
// written to since it arrived.
//
// What the cells must keep to is the other half of the protocol; the rules are
// those of model.deliver in the tests. Each command names its move. A cell refuses
// import, freeze and activation of a move for which it holds a terminal record;
// writes a terminal record for an aborted move that it never heard of; freezes only
// ACTIVE at the move's old epoch; thaws only FROZEN of that move and only by ABORT;
// activates only by COMMIT, only what shows W, only above every epoch that it has
// seen; starts a staging over only for a higher attempt.
//
// Bytes on disk: Move.Encode, CBOR maps with integer keys; a key is never given
// another meaning. Events are encoded likewise by whoever logs them.
package moves
