// Package verify finds replicas of a group whose content differs.
//
// The leader logs a mark for a target (raftfsm.Mark). Applying it, each member
// pins its file as it is at that log entry, digests the pinned state in the
// background, and keeps the result for whoever asks. When a member has its own,
// it asks all others for theirs and judges: no member acts on what another tells
// it to do, only on what a majority of digests says against its own.
//
//   - All equal: nothing.
//   - A majority of the voters agrees and others differ: each of those that
//     differ, and only it, gives its own file up (Config.Condemn). That may be
//     the leader. Everybody logs it.
//   - Replicas differ and no majority agrees: everybody logs it, nobody acts.
//   - Somebody did not answer: what is there is judged, by the same majority of
//     all voters.
//
// # Sweep
//
// The leader marks every target once in a cycle, which is half of Config.Every.
// All members see all marks and note their times, so a new leader goes on where
// the last one stopped. A member that starts knows of no marks; it spreads the
// targets evenly over a cycle that begins with its start. A target is thus marked
// within a cycle after its last mark or after the start of the member that leads,
// and within Config.Every after its last mark even if that member starts at the
// last moment. Only members that start anew more often than once a cycle can
// make it later, and only time during which nobody leads or the sweep is busy
// comes on top. A target whose replicas differed is marked again after a minute,
// then after two, four and so on, until they are equal.
//
// # Bounds
//
// At most maxPins states are pinned at a time, each for at most pinTime, since a
// pin holds the file's checkpoints back; maxTasks marks are worked on, keptResults
// results kept. What is over a bound has no digest this time, and says so. The
// sweep marks one target at a time and reads at most Config.Rate bytes a second.
//
// # Goroutines and locks
//
// Start begins one goroutine that sweeps. Each mark that is looked at has one,
// which asks other members in further ones and waits for them. Close ends and
// waits for all. Locks: Verifier.mu, results.mu and schedule.mu are leaves. Look
// runs inside apply, under raftfsm's locks, and takes a file's writer lock.
package verify
