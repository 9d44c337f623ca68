// Command celld is the whole platform in one binary: `celld dev` for one machine,
// `celld gateway` and `celld node` for real ones, and the tools around them.
//
// A command is a struct with flags and a Run method, here or in a package below;
// everything worth importing lies there:
//
//	settings  what a process may be told, and where from
//	role      a gateway or a node made of its settings
//	platform  a whole platform on one machine
//	admin     celld admin
//	importer  celld import
//	client    calls of the HTTP APIs
//
// Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 a node that its cell
// has removed. What a command
// answers goes to standard output, everything else to standard error.
//
// The first SIGINT or SIGTERM asks for an ordered stop, the second one ends the
// process at once. One goroutine waits for signals and ends with the command.
package main
