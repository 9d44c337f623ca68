package hop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// quick makes a connection notice in little time what takes seconds otherwise. To
// come about it may take as long as a busy machine makes it.
func quick() timing {
	return timing{dial: patience, tick: 5 * time.Millisecond, quiet: 100 * time.Millisecond, idle: 100 * time.Millisecond, pong: 2 * time.Second,
		write: 2 * time.Second, spare: time.Minute, close: 200 * time.Millisecond}
}

// pair is a server and a client of it, over TCP without TLS.
type pair struct {
	*Client
	server *Server
	l      net.Listener
	served chan error
}

func newPair(t testing.TB, h http.Handler) *pair {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{server: NewServer(h, slog.New(slog.DiscardHandler)), l: l, served: make(chan error, 1)}
	p.server.timing = quick()
	p.Client = NewClient(Config{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}})
	p.timing = quick()
	go func() { p.served <- p.server.Serve(l) }()
	t.Cleanup(func() {
		p.Close()
		p.server.Close()
		if err := <-p.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return p
}

// eachCaller runs a test of the contract with both callers.
func eachCaller(t *testing.T, h http.HandlerFunc, test func(*testing.T, Caller)) {
	t.Helper()
	t.Run("local", func(t *testing.T) { test(t, Local{h}) })
	t.Run("wire", func(t *testing.T) { test(t, newPair(t, h).Client) })
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h := w.Header()
	for name, values := range r.Header {
		h["Echo-"+name] = values
	}
	_, bounded := r.Context().Deadline()
	h.Set("Was", fmt.Sprintf("%s %s?%s %d %v %v", r.Method, r.URL.Path, r.URL.RawQuery, len(body), bounded, err))
	if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
		w.WriteHeader(status)
	}
	_, _ = w.Write(body)
}

func TestRoundTrips(t *testing.T) {
	sizes := []int{0, 1, 100, maxChunk - 1, maxChunk, maxChunk + 1, window, window + 1, 3*window + 17, 1 << 20}
	eachCaller(t, echo, func(t *testing.T, c Caller) {
		for _, size := range sizes {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			for _, streamed := range []bool{false, true} {
				r := &Request{Method: "PUT", Path: "/tenants/T7/a b%/17", Query: "status=201&q=%20+x", Header: http.Header{
					"Celld-Context": {"a", "b"}, "X-Odd": {""}, "Accept": {"é"}}, Body: body}
				if streamed {
					r.Body, r.Stream = nil, inPieces(body)
				}
				w := httptest.NewRecorder()
				if err := c.Call(within(t), r, w); err != nil {
					t.Fatalf("%d bytes, streamed %t: %v", size, streamed, err)
				}
				want := fmt.Sprintf("PUT /tenants/T7/a b%%/17?status=201&q=%%20+x %d true <nil>", size)
				h := w.Header()
				if w.Code != 201 || h.Get("Was") != want || !bytes.Equal(w.Body.Bytes(), body) {
					t.Fatalf("%d bytes, streamed %t: %d %q, %d bytes", size, streamed, w.Code, h.Get("Was"), w.Body.Len())
				}
				if !slices.Equal(h["Echo-Celld-Context"], []string{"a", "b"}) || !slices.Equal(h["Echo-X-Odd"], []string{""}) || h.Get("Echo-Accept") != "é" {
					t.Fatalf("headers %v", h)
				}
			}
		}
	})
}

// inPieces is a reader that gives one byte, nothing, then the rest.
func inPieces(b []byte) io.Reader {
	first := min(len(b), 1)
	return io.MultiReader(bytes.NewReader(b[:first]), bytes.NewReader(nil), bytes.NewReader(b[first:]))
}

func TestAnswers(t *testing.T) {
	for name, at := range map[string]struct {
		h      http.HandlerFunc
		status int
		body   string
		header http.Header
	}{
		"nothing at all":   {func(http.ResponseWriter, *http.Request) {}, 200, "", nil},
		"a status":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, "", nil},
		"the first status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404, "", nil},
		"a body":           {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, 200, "hello", nil},
		"in pieces": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3 {
				_, _ = fmt.Fprint(w, i)
				w.(http.Flusher).Flush()
			}
		}, 200, "012", nil},
		"flushed without a body": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); w.(http.Flusher).Flush() }, 202, "", nil},
		"large in one piece":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 5*window)) }, 200, strings.Repeat("x", 5*window), nil},
		"large in small pieces": {func(w http.ResponseWriter, _ *http.Request) {
			for range 10_000 {
				_, _ = io.WriteString(w, "0123456789")
			}
		}, 200, strings.Repeat("0123456789", 10_000), nil},
		"a small piece, then a large one": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_, _ = io.WriteString(w, strings.Repeat("b", maxChunk))
		}, 200, "a" + strings.Repeat("b", maxChunk), nil},
		"headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Link"] = []string{"a", "b"}
			w.Header().Set("ETag", `"5"`)
			w.Header().Set("Something-Else", "x")
		}, 200, "", http.Header{"Link": {"a", "b"}, "Etag": {`"5"`}, "Something-Else": {"x"}}},
		"the body is left": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, 413, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachCaller(t, at.h, func(t *testing.T, c Caller) {
				for _, body := range [][]byte{nil, make([]byte, 4*window)} {
					w := httptest.NewRecorder()
					if err := c.Call(within(t), &Request{Method: "POST", Path: "/", Body: body}, w); err != nil {
						t.Fatal(err)
					}
					got := maps.Clone(w.Header())
					got.Del("Content-Type") // the recorder guesses one
					if w.Code != at.status || w.Body.String() != at.body || len(got) != len(at.header) {
						t.Fatalf("%d, %d bytes, %v", w.Code, w.Body.Len(), got)
					}
					for name, values := range at.header {
						if !slices.Equal(got[name], values) {
							t.Fatalf("%s: %v", name, got[name])
						}
					}
				}
			})
		})
	}
}

// TestEndsOfACall: whoever asks goes, or its time is up, and the handler learns it.
func TestEndsOfACall(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	h := func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
		panic(http.ErrAbortHandler)
	}
	eachCaller(t, h, func(t *testing.T, c Caller) {
		for name, call := range map[string]func(*Request) context.Context{
			"cancelled": func(*Request) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-began; cancel() }()
				return ctx
			},
			"context's end": func(*Request) context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				t.Cleanup(cancel)
				go func() { <-began }()
				return ctx
			},
			"deadline": func(r *Request) context.Context {
				r.Deadline = time.Now().Add(50 * time.Millisecond)
				go func() { <-began }()
				return t.Context()
			},
		} {
			r := &Request{Method: "GET", Path: "/"}
			err := c.Call(call(r), r, httptest.NewRecorder())
			if err == nil || errors.Is(err, ErrNotTaken) {
				t.Errorf("%s: the call ended with %v", name, err)
			}
			if err := <-ended; err == nil {
				t.Errorf("%s: the handler's context has not ended", name)
			}
		}
		// One that comes too late is not begun.
		r := &Request{Method: "GET", Path: "/", Deadline: time.Now().Add(-time.Second)}
		if err := c.Call(t.Context(), r, httptest.NewRecorder()); !errors.Is(err, ErrNotTaken) {
			t.Errorf("a deadline in the past: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Call(ctx, &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); !errors.Is(err, ErrNotTaken) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// TestHandlerGivesUp before it answers, and in the middle.
func TestHandlerGivesUp(t *testing.T) {
	eachCaller(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, strings.Repeat("x", 3*maxChunk))
		}
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, c Caller) {
		for _, path := range []string{"/none", "/half"} {
			w := httptest.NewRecorder()
			err := c.Call(within(t), &Request{Method: "GET", Path: path}, w)
			if err == nil || errors.Is(err, ErrNotTaken) {
				t.Errorf("%s: %v", path, err)
			}
			if (path == "/half") != (w.Body.Len() > 0) {
				t.Errorf("%s: %d bytes came", path, w.Body.Len())
			}
		}
	})
}

// brokenWriter fails when the body comes.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the client has gone") }

func TestClientGoesInTheMiddle(t *testing.T) {
	ended := make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", maxChunk)); err != nil {
				<-r.Context().Done()
				close(ended)
				return
			}
		}
	}))
	if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, brokenWriter{httptest.NewRecorder()}); err == nil {
		t.Error("no error")
	}
	<-ended
}

func TestReadsFailWithTheirStream(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("half a body was taken for a whole one")
		}
	}))
	bad := errors.New("the disk is gone")
	r := &Request{Method: "PUT", Path: "/", Stream: io.MultiReader(strings.NewReader("half"), failing{bad})}
	if err := p.Call(within(t), r, httptest.NewRecorder()); !errors.Is(err, bad) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// panics is a writer that fails like a program with a mistake.
type panics struct{ *httptest.ResponseRecorder }

func (panics) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// TestPanicOfTheWriter: what still comes for a call that ended in a panic does not
// meet the next one, and the call's place is free again.
func TestPanicOfTheWriter(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		w.(http.Flusher).Flush() // the rest of the answer comes by itself
	}))
	p.most = 1
	for range 20 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was kept back")
				}
			}()
			_ = p.Call(within(t), &Request{Method: "POST", Path: "/", Body: []byte("another's")}, panics{httptest.NewRecorder()})
		}()
		w := httptest.NewRecorder()
		if err := p.Call(within(t), &Request{Method: "POST", Path: "/", Body: []byte("own")}, w); err != nil || w.Body.String() != "own" {
			t.Fatalf("%v %q", err, w.Body)
		}
	}
	l := (*p.links.Load())[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slots) != 0 || len(l.streams) != 0 {
		t.Errorf("%d places are taken and %d requests under way", len(l.slots), len(l.streams))
	}
}

// TestTurnsOfARetiredConnection: requests that come to their turn when the
// connection takes no more give it to whoever sends for one under way.
func TestTurnsOfARetiredConnection(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	l := newLink(near, hello{version: version, streams: 10, window: window}, quick())
	under := newStream()
	if _, err := l.open(under, 0, []byte("0123"), make([]byte, maxQueue), inTurn); err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return len(l.out.waiting)
	}
	ctx := within(t)
	opened, sent := make(chan error, 2*releases), make(chan error, 1)
	for range cap(opened) {
		go func() { opened <- l.enqueue(ctx, newStream(), flagEnd, []byte("0123"), nil) }()
	}
	for waiting() < cap(opened) {
		runtime.Gosched()
	}
	go func() { sent <- l.send(frame{kind: kindData, stream: under.id}, []byte("more"), ctx.Done()) }()
	for waiting() <= cap(opened) {
		runtime.Gosched()
	}
	l.retire()
	if l.out.take(nil, nil) == nil { // one write, which lets in some of them
		t.Fatal("nothing to write")
	}
	for range cap(opened) {
		if err := <-opened; !errors.Is(err, errDrained) {
			t.Errorf("opened: %v", err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestThousands of requests at once, each with its own answer.
func TestThousands(t *testing.T) {
	eachCaller(t, echo, func(t *testing.T, c Caller) {
		var all sync.WaitGroup
		gate := make(chan struct{}, 1500)
		for i := range 3000 {
			gate <- struct{}{}
			all.Go(func() {
				defer func() { <-gate }()
				body := strings.Repeat(strconv.Itoa(i)+".", i%2000)
				w := httptest.NewRecorder()
				r := &Request{Method: "POST", Path: "/", Body: []byte(body), Header: http.Header{"N": {strconv.Itoa(i)}}}
				if err := c.Call(within(t), r, w); err != nil || w.Body.String() != body || w.Header().Get("Echo-N") != strconv.Itoa(i) {
					t.Errorf("%d: %v, %d bytes of %d", i, err, w.Body.Len(), len(body))
				}
			})
		}
		all.Wait()
	})
}

// laterWriter does something once, when a piece of the answer is handed to it.
type laterWriter struct {
	*httptest.ResponseRecorder
	then func()
}

func (w *laterWriter) Write(p []byte) (int, error) {
	if then := w.then; then != nil {
		w.then = nil
		then()
	}
	return w.ResponseRecorder.Write(p)
}

// TestPieceAndEndAtOnce: a piece of an answer and the end of its stream share one
// signal, and whoever takes the piece learns of the end all the same.
func TestPieceAndEndAtOnce(t *testing.T) {
	head, err := appendAnswer(nil, http.StatusOK, nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]struct {
		end  func(*stream) error
		want error
	}{
		"aborted":  {func(s *stream) error { s.fail(errAborted); return nil }, errAborted},
		"complete": {func(s *stream) error { return s.deliver([]byte("3"), false, 0, true) }, nil},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			a := &asking{stream: newStream()}
			a.begin(window, window, time.Time{})
			w := &laterWriter{httptest.NewRecorder(), func() {
				if err := errors.Join(a.deliver([]byte("2"), false, 0, false), end.end(a.stream)); err != nil {
					t.Error(err)
				}
			}}
			if err := errors.Join(a.deliver(head, true, len(head), false), a.deliver([]byte("1"), false, 0, false)); err != nil {
				t.Fatal(err)
			}
			whole, err := a.receive(ctx, nil, w)
			if !errors.Is(err, end.want) || whole != (end.want == nil) {
				t.Errorf("whole: %v, %v", whole, err)
			}
			if got := w.Body.String(); !strings.HasPrefix(got, "12") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestReadEndsWithItsBody: the end of a body reaches whoever waits for more of it,
// even if the answer takes every signal of the stream that the two share.
func TestReadEndsWithItsBody(t *testing.T) {
	b := &requestBody{s: &serving{stream: stream{ready: nil}}} // all signals go elsewhere
	ended := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		ended <- err
	}()
	await(t, "the reader to wait", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.over != nil
	})
	b.close()
	b.close()
	select {
	case err := <-ended:
		if !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Fatal("it still waits")
	}
}
