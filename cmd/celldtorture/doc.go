// Command celldtorture breaks a platform on one machine, over and over, and after
// each time holds what was acknowledged against what is there.
//
// The platform runs every gateway and node as a process of its own, from a celld
// that was built with the tag failpoints. Writers put invoices into some tenants
// of one cell, each under an idempotency key which they repeat until it is
// acknowledged. A cycle is: some writing, a fault or two while the writing goes
// on, the platform whole again by itself, writers paused; then
//
//   - every invoice acknowledged since the last cycle is there once, under its id,
//     and nothing else is (at the end: every invoice of the whole run);
//   - the replicas of tenants chosen by chance have equal digests (at the end: of
//     all tenants).
//
// The faults, chosen by chance, all of them reproducible in kind but not in time:
//
//	kill        SIGKILL to a node, or to the leader, or to all nodes, or to the gateway
//	failpoint   SIGKILL at a named step (package store/failpoint) of whichever node comes first
//	away        a node stands still (SIGSTOP) until the others have cut their log, and has to
//	            fetch what it missed; as often as not it dies at a step of just that
//	damage      a node is killed and a page of a tenant's file overwritten: it fetches that file
//	power       the node's file system loses what was not fsynced, as in a power cut; of
//	            one node or of all (only if asked for: --power)
//
// A power cut needs root and loop devices: each node's folder lies on an ext4
// image of its own, which the EXT4_IOC_SHUTDOWN ioctl cuts off without flushing
// its journal before the process is killed.
//
// Anything amiss ends the run with exit code 1 and leaves the folder behind.
package main
