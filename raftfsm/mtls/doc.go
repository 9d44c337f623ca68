// Package mtls makes and checks the certificates by which the processes of a
// cluster know each other: one certificate authority, one certificate a
// process, and in it the process's identity as its only URI name.
//
// Identities are celld://node/<cell>/<node> and celld://gateway/<name>. A peer is
// known by identity alone: certificates carry no host names, so processes may
// move between machines, and a dialer says whom it expects.
//
// On disk: PEM files. A private key's file is 0600; one that others can read is
// refused. The package keeps no state and starts no goroutine.
package mtls
