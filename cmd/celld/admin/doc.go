// Package admin is `celld admin`: the operator's commands over the operator API.
//
// Each command is one or a few calls (cell add-node asks again until the node has its
// vote) and one table, or with --json exactly one
// JSON document on standard output, which is the server's answer, or the problem
// if it refused. Lists walk all pages. Exit codes: 0 done, 1 refused or failed,
// 2 wrong usage.
//
// It keeps no state and starts no goroutines.
package admin
