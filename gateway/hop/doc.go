// Package hop carries requests from a gateway to a node of a cell: many at a time
// over a few long-lived connections, or by a call where the node is in the same
// process. It knows nothing of tenants or identities: whoever dials and whoever
// listens prove who they are below it, by mutual TLS.
//
// Client and Local are the two Callers, and one contract holds for both. Server
// calls an http.Handler with a light request and writer; to a handler it is no
// different from net/http, but for this: the answer's beginning is the end of the
// request's body.
//
// Invariants:
//   - An error that is ErrNotTaken says that the node has not begun with the
//     request. After every other error it may have had its effect.
//   - A connection's reader waits for nobody. What has come of a body is kept up to
//     a window for each request, and more is not sent without credit. So who reads
//     slowly holds up nobody else.
//   - Everything is bounded: frames, heads, header lines, the window of each body,
//     requests on a connection, connections of a server and of a client, bytes that
//     wait to be written.
//   - A request's deadline and the caller's going away reach the handler's context.
//   - A peer that is silent while requests are under way is pinged after 1.5 s and
//     given up after 2.5 s more; one write may take 5 s.
//   - Nothing of a request outlives it where another could meet it: writers, headers
//     and contexts are made anew; buffers that are used again hold no more than was
//     written into them.
//
// # Goroutines and locks
//
// A connection has three goroutines: the reader, the writer, and the keeper, which
// minds deadlines and silence. On the asking side the caller's own goroutine sends
// the body and takes the answer. On the serving side each request has a goroutine
// for its handler, which then waits for another request; at most 64 of a connection
// wait. A Client has one more for each connection, which dials and waits for its
// end. Client.Close, Server.Shutdown and Server.Close wait for all of them.
//
// Locks, in this order: Client.mu or Server.mu; link.mu, the table of requests;
// stream.mu, one request's state; queue.mu, what is to be written. requestBody.mu
// comes before stream.mu. None is held while anything waits.
//
// # On the wire
//
// Below is TLS 1.3 with the protocol name "celld-hop" (ALPN). Both directions are
// frames, numbers big endian:
//
//	 0  4  length of the payload
//	 4  1  kind
//	 5  1  flags: 1 = the body ends here (request, answer, data)
//	 6  4  stream, 0 for the connection itself
//	10     payload
//
// Kinds:
//
//	1 hello    version (1), requests at once (4), window (4). First in each
//	           direction; bytes behind these are for later versions. The asking side
//	           offers the newest version that it speaks, the other side answers with
//	           the one that counts, which is not above it.
//	2 request  opens a stream; numbers only grow
//	3 answer   begins the answer, once
//	4 data     more of a body, at most 16 KiB
//	5 credit   so many more bytes of a body may come (4)
//	6 reset    the stream ends here (1): 1 whoever asked has gone or its time is
//	           up, 2 the handler gave up, 3 not taken, too many under way
//	7 ping     8 pong
//	9 drain    the highest stream that was taken (4); no other will be
//
// A request's and an answer's payload is the length of the head (4, at most
// 160 KiB), the head, and up to 16 KiB of the body. In a head numbers are varints
// and texts have their length in front:
//
//	request: time that is left in ms or 0; length of the body + 1, or 0 if it is
//	         not known; method; path, decoded; query; header
//	answer:  status; header
//	header:  number of lines; for each a byte that stands for the name (head.go),
//	         or 0 and the name; the value
//
// A body's bytes, those in the request and answer frames too, count against the
// window that the receiver's hello gave, 64 KiB; credit is given back in halves of
// it, as the body is read.
//
// Whoever meets anything else closes the connection.
package hop
