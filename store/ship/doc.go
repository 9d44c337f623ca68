// Package ship copies a tenant's SQLite file while it is being written, and follows it
// until both are the same to the byte. A Source sends from the file, a Stage builds the
// copy; between them are streams of bounded chunks, through an io.Writer and an
// io.Reader. It knows no network and no Raft.
//
// A copy goes like this:
//
//	s, err := ship.Begin(ctx, ship.SourceConfig{File: f})
//	to, err := ship.OpenStage(ship.StageConfig{...})
//	s.SendPages(ctx, w, to.Progress().Next())          to.TakePages(ctx, r)
//	s.SendRound(ctx, w, to.Progress().At.Position)     to.TakeRound(ctx, r)    again and again
//	to.Inspect(...)                                    while writes still go on
//	s.SendRound(...)                                   to.TakeRound(...)       with writes stopped
//	to.Finish()                                        s.Close()
//
// # Invariants
//
// A copy is of one chain of frames. It begins at a state that a pin keeps, together with
// all of the WAL from there on (store.File.PinWAL); frames count only if they carry the
// WAL's salts and continue its running checksum, on both ends. Whatever else is found
// (a WAL that has begun anew or is shorter, a position that it does not have, a checksum
// that does not fit, a pin that has ended) is ErrBroken: the copy is over, and the next
// one starts from nothing. No frame behind the last commit is ever sent: a round commits
// first, asks SQLite under the writer's lock how many frames there are, and reads up to
// that one.
//
// Both ends keep a digest over all pages: the sum of the SHA-256 of each page with its
// number. The source adds what it sends, and takes away what each page was; the stage
// does the same with what it finds in its own file. Every stream ends with the source's,
// and the stage takes none that ends with another. So when writes have stopped the
// comparison costs as much as the last round. Damage to a page on the stage's disk that
// no later frame replaces is seen by Stage.Verify, which reads all of them.
//
// A stage has, for whoever opens it, the state of one commit, or a beginning of the
// pages, or nothing. What its methods have returned is durable. A crash at any point
// leaves a stage that goes on exactly, or an empty one.
//
// The finished file is the source's, byte for byte, as it is when all of its WAL is
// moved into it; nothing is left out or changed. SQLite promises that of no page on the
// freelist that was never written, and of none behind the database's end: such pages are
// of zeros here, and in every file that no VACUUM has shrunk. The page at 1 GiB, which
// SQLite never writes, is of zeros on both ends.
//
// Memory: one piece of 256 KiB for each stream at each end, whatever the file's size. A
// source also keeps 32 bytes for each page, in a file that has no name.
//
// # Goroutines and locks
//
// There are no goroutines. A Source has one turn: who sends has it, others wait, and it
// is held while the receiver is slow. A Stage has a lock of the same kind, and another,
// never held for long, around its Progress. While a Source waits (for its pace, for the
// receiver) it holds no lock and no slot of the store's. The WAL is read through a
// descriptor of its own, opened for each round: SQLite has no locks on that file. A
// Stage's descriptor of the database is closed while SQLite looks into it, and so no
// descriptor's closing drops a lock.
//
// # Bytes of a stream
//
// Integers are big endian. A stream is chunks:
//
//	1 byte    kind: S, P, F, E
//	4 bytes   length of the body
//	4 bytes   CRC-32C of the five bytes before and the body
//	          the body
//
// It begins with S, ends with E, and has P or F between:
//
//	S  "celldsh1", the kind to come (P or F), a start, and: of P the number of the first
//	   page (4), of F the position that the first frame follows
//	P  number of the first page (4), whole pages
//	F  number of the first frame (4), whole frames as they are in the WAL
//	E  a point: where the stream leads
//
// and in them:
//
//	position  page size (4), the WAL's magic number (4), salts (8), frames (4), checksum
//	          (4, 4), pages of the database (4)
//	point     position, applied index (8), sequence (8), digest (32)
//	start     position, applied index (8), sequence (8), epoch (8), uid and tenant id,
//	          each behind its length (1)
//
// # Bytes on disk
//
// A stage's folder has the database under its name, beside it ".tail", frames as in the
// WAL that are not applied yet, and ".stage". That one has two slots, at 0 and 4096,
// written in turn, the valid one with the higher number counts:
//
//	"celldst1", number (8), phase (1), pages (4), two points (where the stage is, where
//	the tail leads), start, zeros up to 1020 bytes, CRC-32C (4)
//
// Phases: 0 empty, 1 pages, 2 at the end of the pages or of a round, 3 in the middle of a
// round, 4 on the way along the tail. A database without ".stage" beside it is finished.
package ship
