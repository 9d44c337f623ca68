// Package importer is `celld import`: a bulk load of customers and invoices from
// CSV files into one tenant, over the public HTTP API and nothing else.
//
// # Wiring
//
// Command carries the flags. Its Run method asks kong for two bindings: a
// context that ends on Ctrl-C, and the *kong.Context that kong binds by itself,
// from which it takes stdout and stderr:
//
//	var cli struct {
//		Import importer.Command `cmd:"" help:"Load customers and invoices from CSV files."`
//	}
//	k.BindTo(ctx, (*context.Context)(nil))
//	k.FatalIfErrorf(k.Run())
//
// Errors implement kong.ExitCoder: 1 when something was not loaded, 2 when the
// command line or a file's header cannot be used and nothing was sent. The
// summary and the rows' errors have been written by then.
//
// # Invariants
//
//   - A row is sent under an Idempotency-Key made of tenant, kind of file and
//     reference, so sending it again, in this run or a later one, has one effect.
//   - A row whose object is there already is not sent at all. It is compared with
//     what the file says; a difference is an error, never an update.
//   - An amount is converted exactly or the row is an error. No float, no rounding.
//   - Every customer of the file has its answer before the first invoice is sent.
//   - A row is counted exactly once: created, already there, failed or unfinished.
//     Rows that were never read are counted nowhere, and the summary says so.
//   - Files are streamed. What is held in memory grows by the references of the
//     tenant and of the files (about 100 bytes each, at most maxKnown), not by
//     the files' size.
//   - The token goes to the gateway's own address only; redirects are not followed.
//
// # Goroutines and locks
//
// Command.Import owns them all and returns after they have ended. For each file
// the calling goroutine reads, checks and looks up the rows and hands those that
// need a request over an unbuffered channel to --parallel workers. One more
// goroutine writes the progress line. The objects known to exist (known), the
// counts (tally) and the terminal (console) each have one mutex; none is held
// while another is taken or during a request.
//
// # Bytes on the wire and on disk
//
// Requests are those of the public API. A body is JSON with its keys in sorted
// order and is the same for the same row under the same mapping. The keys are
//
//	celld-import-<kind>-<40 hex digits>
//	    the first 20 bytes of SHA-256("celld import 1\x00" tenant "\x00" kind "\x00" what),
//	    what = "r" reference, or "c" and the SHA-256 of the row's body if it has none.
//
// Changing this form would make a run that was begun by an older celld load rows
// again, so it is pinned by a test. The report of --report is CSV with the columns
// file, line, kind, reference, code, message.
package importer
