// Package fetch brings the files of absent tenants back from the cell's other
// nodes, and gives them this node's files when they ask.
//
// A Server answers GET /internal/tenants/{uid}/file?min=N to nodes of its own
// cell. It samples its applied index, pins the tenant's file and streams its pages
// as they are: the answer holds everything up to that index. 503 with the slug
// behind (it has not applied N), tenant-absent (it lacks the file itself) or busy;
// 404 if the cell stores no such tenant at the index in Celld-As-Of.
//
// A Fetcher watches the absences of its node's Space. For each it asks the others,
// in random order, for a file that this node's log can catch up; stages it in a
// folder of its own, checks it, has the group apply what has been logged since,
// and switches to it. What fails is tried again, later each time. While anything
// is absent, and this node leads, it hands leadership to a voter that lacks
// nothing.
//
// A Fetcher takes nothing in that would use up its disk's reserve.
//
// Both hold one piece of a stream in memory for each transfer, and are limited in
// bytes a second. A Server's pin is bounded in time: who takes less than a MiB a
// second on the average is cut off.
//
// # Bytes
//
// A stream is, integers being big endian:
//
//	8 bytes   "celldtf1"
//	4 bytes   length of the header
//	          the header, encoded by raftfsm.Encode: [version, uid, tenant id,
//	          epoch, folder of the incarnation, as-of index, page size, pages]
//
// then pieces of whole pages, in their order:
//
//	4 bytes   length, not 0
//	4 bytes   CRC-32C of the bytes
//	          the bytes
//
// and at the end:
//
//	4 bytes   0
//	32 bytes  SHA-256 over the header and all pages
//
// Goroutines: Fetcher.Run owns one for each transfer and one that minds the
// leadership, and waits for them. Locks: none.
package fetch
