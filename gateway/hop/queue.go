package hop

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	maxQueue = 256 << 10 // bytes that wait to be written; whoever has more waits
	// maxControl bounds the queue for frames that may not wait: a peer that makes
	// so many of them without reading any is cut off.
	maxControl = 1 << 20
	keepQueue  = 64 << 10 // a buffer that has grown beyond this is not kept
	// releases is how many of those who wait are let in at each write: with a chunk
	// each they fill the queue.
	releases = maxQueue / maxChunk
)

// manner is how a frame comes to the queue.
type manner int

const (
	inTurn   manner = iota // waits while the queue is full, or others wait
	released               // has waited
	forced                 // may not wait
)

// queue is what waits to be written to one connection. Whatever gathers while one
// write is under way goes out with the next, in one piece.
type queue struct {
	mu      sync.Mutex
	pending []byte
	handed  uint64          // bytes that were given to the connection, so far
	waiting []chan struct{} // in the order in which they came; each is closed when its turn is there
	ending  bool            // nothing more comes
	closed  error           // nothing more goes

	wake    chan struct{} // of the writer; holds one
	batches atomic.Uint64 // writes begun and writes ended: odd while one is under way
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put appends a frame, or returns what to wait for before putting it again as
// released; whoever waits no longer says leave. at is where in all that was ever
// sent the frame begins.
func (q *queue) put(f frame, body []byte, how manner) (at uint64, wait chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return 0, nil, q.closed
	case q.ending:
		return 0, nil, errEnded
	case how == forced && len(q.pending) >= maxControl:
		return 0, nil, broken("it sends and does not read")
	case how == inTurn && (len(q.pending) >= maxQueue || len(q.waiting) > 0):
		wait = make(chan struct{})
		q.waiting = append(q.waiting, wait)
		return 0, wait, nil
	}
	at = q.handed + uint64(len(q.pending))
	q.pending = appendFrame(q.pending, f.kind, f.flags, f.stream, f.payload, body)
	q.signal()
	return at, nil, nil
}

// leave gives up the place of whoever waits: one that was let in already lets in
// the next.
func (q *queue) leave(wait chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, wait); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return
	}
	q.release(1)
}

// release is called with mu held. Whoever is let in puts something or leaves, so
// nobody waits while there is nothing to write.
func (q *queue) release(n int) {
	n = min(n, len(q.waiting))
	for _, wait := range q.waiting[:n] {
		close(wait)
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for something to write and returns all of it. used is a buffer that
// is no longer needed. It returns nil when everything has been written and nothing
// more comes, or nothing more goes.
func (q *queue) take(used []byte, done <-chan struct{}) []byte {
	if cap(used) > keepQueue {
		used = nil
	}
	for {
		q.mu.Lock()
		if len(q.pending) > 0 && q.closed == nil {
			batch := q.pending
			q.pending = used[:0]
			q.handed += uint64(len(batch))
			q.release(releases)
			q.mu.Unlock()
			return batch
		}
		ended := q.ending || q.closed != nil
		q.mu.Unlock()
		if ended {
			return nil
		}
		select {
		case <-q.wake:
			// Whoever can run now may have something to say too. On an idle machine
			// this costs nothing, on a busy one it makes few large writes of many.
			runtime.Gosched()
		case <-done:
			return nil
		}
	}
}

// end lets the writer finish what is there.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = true
	q.signal()
}

// close drops what is there and returns how much has been handed over for good.
func (q *queue) close(err error) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = err
		q.pending = nil
		q.release(len(q.waiting))
	}
	return q.handed
}

// finished reports whether all is written and nothing more comes.
func (q *queue) finished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending && len(q.pending) == 0 && q.batches.Load()%2 == 0
}
