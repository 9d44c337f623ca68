package hop

import (
	"context"
	"errors"
	"net/http"
)

// answer is the http.ResponseWriter of a handler. Small answers leave as one frame
// when the handler returns; of a large one what does not fit goes at once, as far
// as the other side gives credit.
type answer struct {
	s    *serving
	ctx  context.Context
	body *requestBody

	header http.Header
	status int
	held   *[]byte // of the body, not sent yet; pooled
	sent   bool    // the head
	err    error   // nothing more can be sent, or may be
}

// Header implements http.ResponseWriter.
func (w *answer) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 8)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter. Informational answers are not passed
// on.
func (w *answer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		w.body.close()
	}
}

// Write implements http.ResponseWriter.
func (w *answer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err != nil {
		return 0, w.err
	}
	if w.held == nil {
		w.held, _ = w.s.session.server.payloads.Get().(*[]byte)
		*w.held = (*w.held)[:0]
	}
	if len(*w.held)+len(p) <= maxChunk {
		*w.held = append(*w.held, p...)
		return len(p), nil
	}
	if w.flush(false); w.err == nil {
		w.err = w.send(p, false)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *answer) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.flush(false)
}

// finish sends what is left, and fails where the answer could not be sent whole.
func (w *answer) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.flush(true)
	return w.err
}

// flush sends what is held, the head before it.
func (w *answer) flush(end bool) {
	if w.err != nil {
		return
	}
	var held []byte
	if w.held != nil {
		held = *w.held
	}
	if !w.sent {
		w.sent = true
		w.err = w.begin(held, end)
	} else if len(held) > 0 || end {
		w.err = w.send(held, end)
	}
	if w.held != nil {
		*w.held = held[:0]
	}
}

// begin sends the head and, in the same frame, what is held of the body: a window
// has room for that.
func (w *answer) begin(held []byte, end bool) error {
	l := w.s.session.link
	pooled, _ := w.s.session.server.payloads.Get().(*[]byte)
	defer w.s.session.server.recycle(pooled)
	head, err := appendAnswer((*pooled)[:0], w.status, w.header)
	*pooled = head
	if err != nil {
		w.s.session.server.logger.Error("an answer cannot be sent", "error", err)
		return err
	}
	if _, err := w.s.spend(len(held)); err != nil {
		return err
	}
	return l.send(frame{kind: kindAnswer, flags: endFlag(end), stream: w.s.id, payload: head}, held, w.ctx.Done())
}

// send sends p as far as there is credit for it, and waits for more.
func (w *answer) send(p []byte, end bool) error {
	for {
		n, err := w.s.spend(min(len(p), maxChunk))
		if err != nil {
			return err
		}
		if n == 0 && len(p) > 0 {
			<-w.s.ready
			continue
		}
		f := frame{kind: kindData, flags: endFlag(end && n == len(p)), stream: w.s.id}
		if err := w.s.session.link.send(f, p[:n], w.ctx.Done()); err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
	}
}

var errReturned = errors.New("the handler has returned")

func endFlag(end bool) byte {
	if end {
		return flagEnd
	}
	return 0
}

// close makes a handler that has returned harmless.
func (w *answer) close() {
	if w.err == nil {
		w.err = errReturned
	}
	if w.held != nil {
		w.s.session.server.recycle(w.held)
		w.held = nil
	}
}
