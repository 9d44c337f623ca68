package hop

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// session is one connection on the side that serves.
type session struct {
	server  *Server
	link    *link
	tls     *tls.ConnectionState // nil without TLS
	remote  string
	greeted bool // under the server's lock: link is there

	jobs    chan *serving // to goroutines that wait for one
	parked  atomic.Int32  // how many wait
	workers sync.WaitGroup
}

// serving is one request at the side that serves.
type serving struct {
	stream
	session *session
	payload *[]byte // the request as it came; pooled
	whole   bool    // all of the body is in it
}

// request takes a request from the reader, which it keeps waiting no longer than a
// copy takes.
func (n *session) request(f frame) error {
	l := n.link
	head := binary.BigEndian.Uint32(f.payload)
	if head > maxHead || int(head)+4 > len(f.payload) {
		return broken("a head of %d bytes in a frame of %d", head, len(f.payload))
	}
	first := len(f.payload) - 4 - int(head)
	l.mu.Lock()
	if f.stream <= l.last {
		l.mu.Unlock()
		return broken("the request %d after %d", f.stream, l.last)
	}
	if l.draining || l.err != nil {
		l.mu.Unlock()
		return nil // the caller has been told, or sees that this has ended
	}
	l.last = f.stream
	if len(l.streams) >= refuseFactor*maxStreams {
		l.mu.Unlock()
		return l.say(kindReset, f.stream, []byte{byte(causeRefused)})
	}
	s := &serving{session: n, whole: f.flags&flagEnd != 0}
	s.id, s.ready = f.stream, make(chan struct{}, 1)
	if first > window {
		l.mu.Unlock()
		return broken("%d bytes of a body without credit", first)
	}
	s.ended = s.whole
	s.credit, s.room = int(l.peer.window), window-first
	l.streams[s.id] = &s.stream
	n.workers.Add(1) // while a request is known, its connection has not ended
	l.mu.Unlock()
	s.payload, _ = n.server.payloads.Get().(*[]byte)
	*s.payload = append((*s.payload)[:0], f.payload...)
	select {
	case n.jobs <- s:
		n.workers.Done() // the goroutine that took it counts already
	default:
		go n.worker(s)
	}
	return nil
}

// worker serves requests: the one that it was made for, and then, on the stack that
// has grown with it, others.
func (n *session) worker(s *serving) {
	defer n.workers.Done()
	for {
		n.serve(s)
		if n.parked.Add(1) > maxParked {
			n.parked.Add(-1)
			return
		}
		select {
		case s = <-n.jobs:
			n.parked.Add(-1)
		case <-n.link.done:
			n.parked.Add(-1)
			return
		}
	}
}

// drain takes no more requests and tells the other side which was the last.
func (n *session) drain() {
	l := n.link
	l.mu.Lock()
	if !l.draining {
		l.draining = true
		var last [4]byte
		binary.BigEndian.PutUint32(last[:], l.last)
		_ = l.say(kindDrain, 0, last[:]) // a connection that has ended says it too
	}
	l.mu.Unlock()
	l.retire()
}

// serve answers one request.
func (n *session) serve(s *serving) {
	l := n.link
	defer func() {
		l.remove(&s.stream)
		n.server.recycle(s.payload)
	}()
	head, first, err := splitHead(*s.payload)
	var in requestHead
	if err == nil {
		in, err = parseRequest(head)
	}
	if err != nil {
		l.fail(err)
		return
	}
	inner, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ctx := &callContext{Context: inner}
	if in.timeout > 0 {
		ctx.deadline = time.Now().Add(in.timeout)
	}
	s.watch(ctx.deadline, cancel)
	body := &requestBody{s: s, first: first}
	defer body.close()
	r := in.request(ctx, body)
	if s.whole && len(first) == 0 {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.TLS, r.RemoteAddr = n.tls, n.remote
	w := &answer{s: s, ctx: ctx, body: body}
	defer w.close()
	if !n.run(w, r) || w.finish() != nil {
		l.reset(&s.stream, causeAborted)
	}
}

// run calls the handler and reports whether its answer is complete.
func (n *session) run(w *answer, r *http.Request) (complete bool) {
	defer func() {
		p := recover()
		if err, ok := p.(error); p == nil || ok && errors.Is(err, http.ErrAbortHandler) {
			return
		}
		n.server.logger.Error("a handler failed", "method", r.Method, "error", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}()
	n.server.handler.ServeHTTP(w, r)
	return true
}

func (s *Server) recycle(b *[]byte) {
	if cap(*b) <= 2*maxChunk {
		s.payloads.Put(b)
	}
}

// watch has the handler's context end when the stream fails. It may have already.
func (s *serving) watch(deadline time.Time, cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = deadline
	s.gone = func(err error) { cancel(err) }
	if s.err != nil {
		cancel(s.err)
	}
}

// callContext is a request's. It embeds the context that is cancelled, so that
// contexts made of it need no goroutine.
type callContext struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// requestBody is what a handler reads. It may be read by one goroutine while
// another one answers.
type requestBody struct {
	s *serving

	mu     sync.Mutex
	first  []byte        // has come, and is to be read next
	over   chan struct{} // closed with the body; nil while no Read waits for more
	closed bool
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.closed {
			return 0, http.ErrBodyReadAfterClose
		}
		if len(b.first) > 0 || len(p) == 0 {
			n := copy(p, b.first)
			b.first = b.first[n:]
			return n, b.s.session.link.credit(&b.s.stream, b.s.taken(n, window))
		}
		body, ended, err := b.s.take(nil)
		switch {
		case err != nil:
			return 0, err
		case len(body) > 0:
			b.first = body
		case ended:
			return 0, io.EOF
		default:
			over := make(chan struct{})
			b.over = over
			b.mu.Unlock()
			select {
			case <-b.s.ready:
			case <-over: // the signal is the answer's from now on
			}
			b.mu.Lock()
			b.over = nil
			if b.closed {
				b.s.again() // what was taken may have been the answer's
			}
		}
	}
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.close()
	return nil
}

func (b *requestBody) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.over != nil {
		close(b.over)
	}
	b.closed, b.first = true, nil
}
