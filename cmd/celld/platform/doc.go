// Package platform runs a whole platform on one machine: gateways and two cells,
// within this process or each member as a child process. `celld dev` is a thin
// command over it; end-to-end tests and benchmarks start it like that command.
//
// # On disk
//
//	DIR/celld.lock            held while a platform runs on DIR
//	DIR/platform.json         the shape, nodes that joined or were removed, and
//	                          whether the groups are formed
//	DIR/operator-token        for celld admin --token-file
//	DIR/dev-credentials.json  where it listens, and all tokens; 0600, replaced whole
//	DIR/pids.json             members' processes, with Isolate; replaced whole
//	DIR/celld.log             at most 64 MiB, and one old file of that size
//	DIR/run/                  this start's CA, keys and settings
//	DIR/gateways/G1/          a gateway's data
//	DIR/cells/C2/n1/          a node's data
//
// Nothing else in DIR is touched.
//
// # Invariants
//
// Only one platform runs on a folder. /readyz answers 200 only when credentials
// and process ids are written, the cells have leaders, and what was asked for is
// loaded. Groups are formed once, by all members; later starts need a majority of
// each. A node that its cell has removed stays down, in this start and later ones.
// Tokens stay the same from start to start.
//
// # Goroutines and locks
//
// Each Member has one goroutine while it is supervised, and each child process
// one that waits for it; Stop waits for all of them. Member.mu guards a member's
// current life, Platform.mu the nodes and the files that the platform writes, outages.mu why
// members are down.
package platform
