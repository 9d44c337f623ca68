package hop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Request is what a node is asked. It may be used again after Call has returned.
type Request struct {
	Method string // GET and so on
	Path   string // decoded
	Query  string // encoded
	Header http.Header
	// Body is the whole body. Stream is one that is read while it is sent; its Read
	// should end with the context of the call. At most one of the two is set.
	Body   []byte
	Stream io.Reader
	// Deadline bounds the call from its beginning to the end of the answer, as the
	// end of its context does, but to a quarter of a second only and without a timer
	// of its own. Both reach the handler. The zero value is none.
	Deadline time.Time
}

// Caller asks one node. *Client does it over the wire, Local in the same process.
//
// Call writes the answer to w as it comes, its header as a whole and then the body,
// and returns when it is complete. On an error w may have got some of it. An error
// that is ErrNotTaken says that the node has not begun with the request; after any
// other it may have had its effect.
type Caller interface {
	Call(ctx context.Context, r *Request, w http.ResponseWriter) error
}

// ErrNotTaken says that the request has certainly not been begun.
var ErrNotTaken = errors.New("the node has not taken the request")

// errAborted is a handler that gave up (http.ErrAbortHandler), or failed.
var errAborted = errors.New("the handler gave up")

func notTaken(why error) error { return fmt.Errorf("%w: %w", ErrNotTaken, why) }

// Local asks a handler in this process. A panic of the handler's passes through,
// but for http.ErrAbortHandler, which is an error here.
type Local struct{ Handler http.Handler }

// Call implements Caller.
func (l Local) Call(ctx context.Context, r *Request, w http.ResponseWriter) (err error) {
	if !r.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.Deadline)
		defer cancel()
	}
	if ctx.Err() != nil {
		return notTaken(context.Cause(ctx))
	}
	var body io.ReadCloser = http.NoBody
	length := int64(len(r.Body))
	switch {
	case r.Stream != nil:
		body, length = io.NopCloser(r.Stream), -1
	case length > 0:
		body = io.NopCloser(bytes.NewReader(r.Body))
	}
	in := requestHead{method: r.Method, path: r.Path, query: r.Query, header: r.Header, length: length}
	defer func() {
		if p := recover(); p != nil {
			if e, ok := p.(error); !ok || !errors.Is(e, http.ErrAbortHandler) {
				panic(p)
			}
			err = errAborted
		}
	}()
	l.Handler.ServeHTTP(w, in.request(ctx, body))
	return nil
}

// request is the head as a handler knows it.
func (h *requestHead) request(ctx context.Context, body io.ReadCloser) *http.Request {
	r := &http.Request{Method: h.method, URL: &url.URL{Path: h.path, RawQuery: h.query}, Host: "cell",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h.header, Body: body, ContentLength: h.length}
	return r.WithContext(ctx)
}
