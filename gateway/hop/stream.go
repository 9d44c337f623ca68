package hop

import (
	"sync"
	"time"
)

// stream is one request with its answer, as either side has it. One goroutine, its
// owner, waits for what comes: the caller, or the handler.
type stream struct {
	id    uint32
	at    uint64        // where its request begins in what was sent; the caller's side
	ready chan struct{} // holds one: something has changed

	mu       sync.Mutex
	answered bool   // the answer has begun to come
	head     []byte // its first payload
	body     []byte // has come and is not taken yet
	ended    bool   // the body is complete
	err      error  // nothing more comes
	credit   int    // bytes of a body that may be sent
	room     int    // bytes of a body that may come
	owed     int    // bytes that were taken and not given credit for
	deadline time.Time
	gone     func(error) // told of err; nil for nobody
}

func newStream() *stream { return &stream{ready: make(chan struct{}, 1)} }

// begin makes s ready for a request. credit and room are what the hellos said.
func (s *stream) begin(credit, room int, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit, s.room, s.deadline = credit, room, deadline
}

// late reports whether time is up.
func (s *stream) late(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.deadline.IsZero() && now.After(s.deadline)
}

// changed is called with mu held.
func (s *stream) changed() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// again signals without a change.
func (s *stream) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

// deliver keeps what has come. head tells the first frame of an answer, whose body
// begins at the byte from.
func (s *stream) deliver(payload []byte, head bool, from int, end bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(payload) - from; {
	case s.err != nil:
		return nil // its owner knows already
	case s.ended:
		return broken("more of a stream that has ended")
	case head && s.answered:
		return broken("two answers to one request")
	case n > s.room:
		return broken("%d bytes more than there is credit for", n-s.room)
	default:
		s.room -= n
	}
	if head {
		s.answered = true
		s.head = append(s.head[:0], payload...)
	} else {
		s.body = append(s.body, payload...)
	}
	s.ended = end
	s.changed()
	return nil
}

// grant lets more of the body be sent.
func (s *stream) grant(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 || n > maxCredit-s.credit {
		return broken("a credit of %d", n)
	}
	s.credit += n
	s.changed()
	return nil
}

// fail ends the stream for its owner. The first reason counts.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	if s.gone != nil {
		s.gone(err)
	}
	s.changed()
}

// spend takes credit for as much of n as there is.
func (s *stream) spend(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.credit)
	s.credit -= n
	return n, s.err
}

// take swaps what has come of the body for an empty buffer. What came before a
// failure is still given, and nothing fails a body that is complete.
func (s *stream) take(empty []byte) (body []byte, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.body) == 0 && s.err != nil && !s.ended {
		return empty[:0], false, s.err
	}
	body, s.body = s.body, empty[:0]
	return body, s.ended, nil
}

// begun returns the answer's first payload, nil until it has come, and what there
// is to wait for no longer.
func (s *stream) begun() (head []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered {
		return s.head, nil
	}
	return nil, s.err
}

// taken counts bytes that the owner has done with and returns how much credit to
// give for them now: none until it is worth a frame, and none for a body that has
// ended.
func (s *stream) taken(n, window int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed += n
	if s.ended || s.owed < window/2 {
		return 0
	}
	n, s.owed = s.owed, 0
	s.room += n
	return n
}

// reset makes s as good as new. Nobody else may know it any more.
func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready:
	default:
	}
	if cap(s.head) > 2*maxChunk {
		s.head = nil
	}
	s.id, s.at, s.deadline = 0, 0, time.Time{}
	s.head, s.body = s.head[:0], nil
	s.answered = false
	s.ended, s.err, s.gone = false, nil, nil
	s.credit, s.room, s.owed = 0, 0, 0
}
