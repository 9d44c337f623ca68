// Package nodetest runs a cell of three real nodes inside a test: real files,
// real Raft over loopback with mutual TLS, and a caller that signs contexts and
// follows the leader as a gateway does. For tests only.
//
// Goroutines: the nodes' own, ended by the test's cleanup.
package nodetest
