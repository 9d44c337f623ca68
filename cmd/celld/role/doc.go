// Package role makes a gateway or a node of its settings: it reads the secrets
// that they name, opens the listeners and puts the parts together. `celld
// gateway` and `celld node` run one role in a process; package platform runs
// several in one process, or as many processes.
//
// It starts no goroutines of its own but the servers of a node's metrics and of
// profiles, which Close ends.
package role
