package hop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// asking is one call of a client's. It is used again for the next.
type asking struct {
	*stream
	head  []byte // the request's
	spare []byte // for what comes
	chunk []byte // of a stream that is sent
}

// Call implements Caller.
func (c *Client) Call(ctx context.Context, r *Request, w http.ResponseWriter) error {
	deadline := r.Deadline
	if end, ok := ctx.Deadline(); ok && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	if ctx.Err() != nil {
		return notTaken(context.Cause(ctx))
	}
	a, _ := c.pool.Get().(*asking)
	defer func() {
		a.reset()
		c.pool.Put(a)
	}()
	for {
		l, err := c.enter(ctx, deadline)
		if err != nil {
			return notTaken(err)
		}
		err = a.on(ctx, l, r, deadline, w)
		if !errors.Is(err, errDrained) || errors.Is(err, ErrNotTaken) {
			return err
		}
		// The connection was just about to end; nothing was sent on it.
	}
}

// on asks on one connection, in whose slots it has a place, and gives that back.
func (a *asking) on(ctx context.Context, l *link, r *Request, deadline time.Time, w http.ResponseWriter) error {
	defer func() { <-l.slots }()
	if err := a.open(ctx, l, r, deadline); err != nil {
		return err
	}
	return a.converse(ctx, l, r, w)
}

// enter takes a place among the requests of a connection.
func (c *Client) enter(ctx context.Context, deadline time.Time) (*link, error) {
	if l := c.pick(); l != nil {
		select {
		case l.slots <- struct{}{}:
			return l, nil
		default:
		}
	}
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for {
		l, err := c.link(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return l, nil
		case <-l.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// open sends the head, and with it the whole body if that is small. An error says
// that nothing was sent.
func (a *asking) open(ctx context.Context, l *link, r *Request, deadline time.Time) error {
	h := requestHead{method: r.Method, path: r.Path, query: r.Query, header: r.Header, length: int64(len(r.Body))}
	if r.Stream != nil {
		h.length = -1
	}
	if !deadline.IsZero() {
		if h.timeout = time.Until(deadline); h.timeout <= 0 {
			return notTaken(errTimeout)
		}
	}
	var err error
	if a.head, err = appendRequest(a.head[:0], &h); err != nil {
		return notTaken(err)
	}
	first := r.Body[:min(len(r.Body), maxChunk)]
	flags := byte(0)
	if r.Stream == nil && len(first) == len(r.Body) {
		flags = flagEnd
	}
	a.begin(int(l.peer.window)-len(first), window, deadline)
	return l.enqueue(ctx, a.stream, flags, a.head, first)
}

// converse sends the rest of the body and takes the answer. However it ends, by a
// panic of the body's or of w's too, the connection does not know a any more: what
// still comes must not meet a's next request.
func (a *asking) converse(ctx context.Context, l *link, r *Request, w http.ResponseWriter) (err error) {
	whole := false
	defer func() {
		if !whole {
			l.reset(a.stream, causeGone)
		}
		l.remove(a.stream)
	}()
	if r.Stream != nil {
		err = a.sendFrom(ctx, l, r.Stream)
	} else if rest := r.Body[min(len(r.Body), maxChunk):]; len(rest) > 0 {
		err = a.send(ctx, l, rest, true)
	}
	if err == nil || errors.Is(err, errAnswered) {
		whole, err = a.receive(ctx, l, w)
	}
	return err
}

// errAnswered says that the answer has begun, and the rest of the body is of no use.
var errAnswered = errors.New("the request is answered already")

// wait waits until something has changed, or the caller has gone.
func (a *asking) wait(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send sends a part of the body as far as there is credit for it, and waits for
// more.
func (a *asking) send(ctx context.Context, l *link, p []byte, end bool) error {
	for {
		if head, err := a.begun(); err != nil {
			return err
		} else if head != nil {
			return errAnswered
		}
		n, err := a.spend(min(len(p), maxChunk))
		if err != nil {
			return err
		}
		if n == 0 && len(p) > 0 {
			if err := a.wait(ctx); err != nil {
				return err
			}
			continue
		}
		flags := byte(0)
		if end && n == len(p) {
			flags = flagEnd
		}
		if err := l.send(frame{kind: kindData, flags: flags, stream: a.id}, p[:n], ctx.Done()); err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
	}
}

// sendFrom sends a body while it reads it.
func (a *asking) sendFrom(ctx context.Context, l *link, from io.Reader) error {
	if a.chunk == nil {
		a.chunk = make([]byte, maxChunk)
	}
	for {
		n, err := from.Read(a.chunk)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return fmt.Errorf("read the body: %w", err)
		}
		if n > 0 || end {
			if err := a.send(ctx, l, a.chunk[:n], end); err != nil || end {
				return err
			}
		}
	}
}

// receive hands the answer on to w as it comes. whole says that nothing more can
// come of it.
func (a *asking) receive(ctx context.Context, l *link, w http.ResponseWriter) (whole bool, err error) {
	if err := a.answer(ctx, l, w); err != nil {
		return false, err
	}
	for {
		body, ended, err := a.take(a.spare)
		if err != nil {
			return false, err
		}
		if len(body) > 0 {
			if _, err := w.Write(body); err != nil {
				return false, fmt.Errorf("hand the answer on: %w", err)
			}
			if err := l.credit(a.stream, a.taken(len(body), window)); err != nil {
				return false, err
			}
		}
		a.spare = body
		if ended {
			return true, nil
		}
		if len(body) > 0 {
			if f, ok := w.(http.Flusher); ok {
				f.Flush() // it comes in pieces because it is made in pieces
			}
			continue // the one signal may have stood for this piece and for what came after it
		}
		if err := a.wait(ctx); err != nil {
			return false, err
		}
	}
}

// answer waits for the answer's beginning and hands it on.
func (a *asking) answer(ctx context.Context, l *link, w http.ResponseWriter) error {
	for {
		payload, err := a.begun()
		if err != nil {
			return err
		}
		if payload == nil {
			if err := a.wait(ctx); err != nil {
				return err
			}
			continue
		}
		head, body, err := splitHead(payload)
		if err == nil {
			var status int
			if status, err = parseAnswer(head, w.Header()); err == nil {
				w.WriteHeader(status)
			}
		}
		if err != nil {
			l.fail(err)
			return err
		}
		if len(body) == 0 {
			return nil
		}
		if _, err := w.Write(body); err != nil {
			return fmt.Errorf("hand the answer on: %w", err)
		}
		return l.credit(a.stream, a.taken(len(body), window))
	}
}

// reset makes a as good as new.
func (a *asking) reset() {
	if cap(a.spare) > window {
		a.spare = nil
	}
	if cap(a.head) > maxChunk {
		a.head = nil
	}
	a.stream.reset()
}
