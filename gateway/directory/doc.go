// Package directory is one gateway's replica of the directory: users,
// credentials, tenants with their placements, memberships, invites, cells, moves
// and the audit. It reads the replica, proposes the commands of raftfsm/dirfsm, and
// knows whether it may speak for the directory at all.
//
// Invariants:
//   - A gateway speaks only under a lease (Fresh). It asks the leader for a read
//     index at its time t0, applies it, and then may answer until t0 + 1 s. The
//     lease counts by the monotonic and by the wall clock.
//   - A change is answered when every gateway has applied it or no longer holds
//     a lease from before its commit. So when a removal has been answered, no
//     gateway admits the user, and what was created is there at each of them. A
//     refusal is answered under the same condition.
//   - A leader knows when the leases that it gave are over. Of those that others
//     gave it knows that they are over 1 s after it began to lead, and waits.
//   - What is remembered carries the file's sequence from before it was read, and
//     is served only while no command has touched such rows since. It makes no
//     difference whether a fill or a removal comes last.
//   - Secrets leave this package once, in the answer to what made them. Their
//     SHA-256 is all that is proposed. Passwords are hashed here, a few at a time,
//     and an unknown address costs as much as a wrong password.
//   - Every change has an idempotency identity, the client's or one made here,
//     under which it is tried again while its outcome is unknown. OpenSession and
//     Prune do no harm twice and have none.
//
// Fresh reads (Authenticate, Access) check the lease after the read. The lists do
// not: a request has authenticated before, and whoever needs more calls Fresh
// after the list, or Refresh before it.
//
// Once a day the replicas of directory.db are compared (raftfsm/verify).
//
// Goroutines: Open starts two loops, one that renews the lease and one that
// checkpoints and, on the leader, prunes, and the verifier's. A renewal, a settle and its calls to
// the other gateways run in goroutines that their starters wait for. Close says
// in which order all of it stops. Locks: Directory.mu (closing, renewals) and
// leadership.mu (terms, leases) are leaves, held for a few statements and never
// together; dirfsm.Space has its own.
//
// On disk: Config.Dir holds directory.db with what SQLite keeps beside it, and
// raft/, the group's folder.
//
// On the wire: HTTP/1.1 over mutual TLS between gateways, POST to Prefix +
// propose, read-index, applied, digest; bodies are CBOR (types request and answer), at
// most 256 KiB, each call at most 10 s. Only members of the group are served.
//
// A secret's text is described at newSecret.
package directory
