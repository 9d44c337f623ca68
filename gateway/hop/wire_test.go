package hop

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stalled is a writer whose Write waits.
type stalled struct {
	*httptest.ResponseRecorder
	stall chan struct{}
}

func (s stalled) Write(p []byte) (int, error) {
	<-s.stall
	return s.ResponseRecorder.Write(p)
}

// TestSlowReader: who does not take its answer holds up nobody else on the same
// connection, and gets all of it in the end.
func TestSlowReader(t *testing.T) {
	const size = 4 << 20
	var ahead atomic.Int64
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/large" {
			echo(w, r)
			return
		}
		for range size / maxChunk {
			_, _ = io.WriteString(w, strings.Repeat("x", maxChunk))
			ahead.Add(maxChunk)
		}
	}))
	p.most = 1
	slow := stalled{httptest.NewRecorder(), make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- p.Call(within(t), &Request{Method: "GET", Path: "/large"}, slow) }()
	for i := range 500 {
		w := httptest.NewRecorder()
		if err := p.Call(within(t), &Request{Method: "POST", Path: "/", Body: []byte("small")}, w); err != nil || w.Body.String() != "small" {
			t.Fatalf("call %d beside a slow one: %v %q", i, err, w.Body)
		}
	}
	if n := ahead.Load(); n > window+2*maxChunk {
		t.Errorf("the handler wrote %d bytes for nobody", n)
	}
	close(slow.stall)
	if err := <-done; err != nil || slow.Body.Len() != size {
		t.Errorf("%v, %d bytes", err, slow.Body.Len())
	}
}

// TestSlowHandler: a body that its handler does not read waits at its sender.
func TestSlowHandler(t *testing.T) {
	read := make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			<-read
		}
		echo(w, r)
	}))
	p.most = 1
	var sent atomic.Int64
	done := make(chan error, 1)
	large := httptest.NewRecorder()
	go func() {
		done <- p.Call(within(t), &Request{Method: "PUT", Path: "/", Stream: counted{strings.NewReader(strings.Repeat("x", 1<<20)), &sent}}, large)
	}()
	for range 200 {
		if err := p.Call(within(t), &Request{Method: "POST", Path: "/", Body: []byte("small")}, httptest.NewRecorder()); err != nil {
			t.Fatal(err)
		}
	}
	if n := sent.Load(); n > window+2*maxChunk {
		t.Errorf("%d bytes were sent to nobody", n)
	}
	close(read)
	if err := <-done; err != nil || large.Body.Len() != 1<<20 {
		t.Errorf("%v, %d bytes", err, large.Body.Len())
	}
}

type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestReadBesideAnswer: a handler may read in one goroutine and answer in another.
func TestReadBesideAnswer(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var reader sync.WaitGroup
		reader.Go(func() {
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Error("a body that was cut off ended well")
			}
		})
		_, _ = io.WriteString(w, strings.Repeat("x", 4*window))
		reader.Wait()
	}))
	endless, feed := io.Pipe()
	defer feed.Close()
	w := httptest.NewRecorder()
	go func() { // as long as anybody reads, so that no Read of the caller's waits for ever
		for {
			if _, err := feed.Write([]byte("one more")); err != nil {
				return
			}
		}
	}()
	err := p.Call(within(t), &Request{Method: "PUT", Path: "/", Stream: endless}, w)
	_ = endless.Close()
	if err != nil || w.Body.Len() != 4*window {
		t.Errorf("%v, %d bytes", err, w.Body.Len())
	}
}

// TestCut: a connection that breaks in the middle of an answer fails what is under
// way, without saying that it was not taken; the next call connects anew.
func TestCut(t *testing.T) {
	begun, wait := make(chan struct{}), make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		if r.URL.Path != "/" {
			begun <- struct{}{}
			select {
			case <-wait:
			case <-r.Context().Done():
			}
		}
	}))
	defer close(wait)
	results := make(chan error, 2)
	for _, path := range []string{"/half", "/none"} {
		go func() { results <- p.Call(within(t), &Request{Method: "GET", Path: path}, httptest.NewRecorder()) }()
		<-begun
	}
	for _, l := range *p.links.Load() {
		_ = l.conn.Close()
	}
	for range 2 {
		if err := <-results; err == nil || errors.Is(err, ErrNotTaken) {
			t.Errorf("cut off: %v", err)
		}
	}
	if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// TestNeverLeft: what was still in the queue when the connection ended was
// certainly not taken.
func TestNeverLeft(t *testing.T) {
	near, far := net.Pipe() // a write waits until it is read
	defer far.Close()
	l := newLink(near, hello{version: version, streams: 10, window: window}, quick())
	first, second := newStream(), newStream()
	if _, err := l.open(first, flagEnd, []byte("0123"), nil, inTurn); err != nil {
		t.Fatal(err)
	}
	l.start(nil)
	var head [frameHead]byte
	if _, err := io.ReadFull(far, head[:]); err != nil { // the first is being written
		t.Fatal(err)
	}
	if _, err := l.open(second, flagEnd, []byte("0123"), nil, inTurn); err != nil {
		t.Fatal(err)
	}
	l.fail(errSilent)
	l.work.Wait()
	if _, err := first.begun(); err == nil || errors.Is(err, ErrNotTaken) {
		t.Errorf("the first: %v", err)
	}
	if _, err := second.begun(); !errors.Is(err, ErrNotTaken) {
		t.Errorf("the second: %v", err)
	}
	if _, err := l.open(newStream(), 0, nil, nil, inTurn); err == nil {
		t.Error("a third went out")
	}
}

// TestSilentPeer: either side notices the other's silence.
func TestSilentPeer(t *testing.T) {
	hasty := quick()
	hasty.quiet, hasty.idle, hasty.pong = 20*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
	t.Run("server", func(t *testing.T) {
		l := listener(t)
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _, _ = readHello(conn)
				_, _ = conn.Write(appendFrame(nil, kindHello, 0, 0, hello{version, 10, window}.payload(), nil))
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}
		}()
		c := NewClient(Config{Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }})
		defer c.Close()
		c.timing = hasty
		if err := c.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); !errors.Is(err, errSilent) || errors.Is(err, ErrNotTaken) {
			t.Error(err)
		}
	})
	t.Run("client", func(t *testing.T) {
		p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		p.server.timing = hasty
		r := dialRaw(t, p.l.Addr().String())
		r.request(1, flagEnd)
		if got := r.frames(); len(got) == 0 || got[0].kind != kindPing {
			t.Errorf("the server said %v before it hung up", got)
		}
	})
	t.Run("client that reads nothing", func(t *testing.T) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, window))
			}
		}))
		p.server.timing.write = 50 * time.Millisecond
		p.server.timing.pong = patience
		r := dialRaw(t, p.l.Addr().String())
		for id := uint32(1); id < 200; id++ { // together more than the sockets hold
			r.request(id, flagEnd)
		}
		await(t, "the server hangs up", func() bool { return p.server.count() == 0 })
	})
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func await(t testing.TB, what string, yes func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("waited %s until %s", patience, what)
		}
	}
}

func listener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestDrain(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-release
		}
		_, _ = io.WriteString(w, "whole")
	})
	p := newPair(t, h)
	slow, done := httptest.NewRecorder(), make(chan error, 1)
	go func() { done <- p.Call(within(t), &Request{Method: "GET", Path: "/slow"}, slow) }()
	<-begun
	shut := make(chan error, 1)
	go func() { shut <- p.server.Shutdown(within(t)) }()
	await(t, "the client knows", func() bool { return p.pick() == nil })
	if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); !errors.Is(err, ErrNotTaken) {
		t.Errorf("a call to a server that drains: %v", err)
	}
	close(release)
	if err := <-done; err != nil || slow.Body.String() != "whole" {
		t.Errorf("what was under way: %v %q", err, slow.Body)
	}
	if err := <-shut; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestDrainThatTakesTooLong(t *testing.T) {
	begun := make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	done := make(chan error, 1)
	go func() { done <- p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()) }()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-done; err == nil || errors.Is(err, ErrNotTaken) {
		t.Errorf("what was under way: %v", err)
	}
}

// TestClose: the client lets what is under way end.
func TestClose(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-release }))
	done, closed := make(chan error, 1), make(chan struct{})
	go func() { done <- p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()) }()
	<-begun
	go func() { p.Close(); close(closed) }()
	await(t, "it takes no more", func() bool {
		return errors.Is(p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()), ErrNotTaken)
	})
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-closed
}

// TestReconnect: attempts to connect are spaced, and a node that comes back is
// found.
func TestReconnect(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var dials atomic.Int64
	var up atomic.Bool
	dial, refused := p.dial, errors.New("refused")
	p.dial = func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		if !up.Load() {
			return nil, refused
		}
		return dial(ctx)
	}
	call := func() error { return p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()) }
	for range 1000 {
		if err := call(); !errors.Is(err, refused) || !errors.Is(err, ErrNotTaken) {
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n > 100 {
		t.Errorf("%d attempts to connect for 1000 calls", n)
	}
	up.Store(true)
	await(t, "it is there again", func() bool { return call() == nil })
}

// TestNumbersRunOut: a connection whose numbers are used up makes room for another.
func TestNumbersRunOut(t *testing.T) {
	p := newPair(t, http.HandlerFunc(echo))
	for i := range 20 {
		if err := p.Call(within(t), &Request{Method: "POST", Path: "/", Body: []byte("x")}, httptest.NewRecorder()); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if i == 5 {
			l := p.pick()
			l.mu.Lock()
			l.last = maxID - 2
			l.mu.Unlock()
		}
	}
	if l := p.pick(); l == nil || l.last > 20 {
		t.Error("no other connection was opened")
	}
}

// TestSpareConnection: one that nobody needs is closed, and opened again.
func TestSpareConnection(t *testing.T) {
	p := newPair(t, http.HandlerFunc(echo))
	p.timing.spare = 20 * time.Millisecond
	for range 2 {
		if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); err != nil {
			t.Fatal(err)
		}
		await(t, "it is closed on both sides", func() bool { return len(*p.links.Load()) == 0 && p.server.count() == 0 })
	}
}

// TestCrowded: many requests at once open another connection, and no more than
// allowed.
func TestCrowded(t *testing.T) {
	release := make(chan struct{})
	p := newPair(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "two are used", func() bool {
		links := *p.links.Load()
		return len(links) == 2 && len(links[0].slots)+len(links[1].slots) == 1000
	})
	close(release)
	all.Wait()
}

// TestUnsendable: what cannot travel is refused before anything is sent, or is an
// answer that did not come.
func TestUnsendable(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Bad Name"] = []string{"x"}
	}))
	for name, header := range map[string]http.Header{
		"two lines": {"Accept": {"a\nb"}}, "odd name": {"not-canonical": {"x"}}, "many": {"Accept": make([]string, maxHeaders+1)},
		"large": {"Accept": {strings.Repeat("x", maxHead)}},
	} {
		if err := p.Call(within(t), &Request{Method: "GET", Path: "/", Header: header}, httptest.NewRecorder()); !errors.Is(err, ErrNotTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder()); !errors.Is(err, errAborted) {
		t.Errorf("an answer with a bad header: %v", err)
	}
}

// TestFullQueue: whoever finds it full waits, is let in by turns, and may leave.
func TestFullQueue(t *testing.T) {
	q := newQueue()
	f, chunk := frame{kind: kindData, stream: 1}, make([]byte, maxChunk)
	var waits []chan struct{}
	for n := 0; len(waits) < 2*releases; n++ {
		_, wait, err := q.put(f, chunk, inTurn)
		if err != nil || n > 4*releases {
			t.Fatalf("after %d: %v", n, err)
		}
		if wait != nil {
			waits = append(waits, wait)
		}
	}
	open := func() (n int) {
		for _, wait := range waits {
			select {
			case <-wait:
				n++
			default:
			}
		}
		return n
	}
	q.leave(waits[2*releases-1])
	if n := open(); n != 0 {
		t.Errorf("%d were let in at once", n)
	}
	if q.take(nil, nil) == nil {
		t.Fatal("nothing to write")
	}
	if n := open(); n != releases {
		t.Errorf("%d were let in by a write", n)
	}
	if _, wait, err := q.put(f, chunk, inTurn); wait == nil || err != nil {
		t.Errorf("a newcomer passed those who wait: %v", err)
	}
	if _, wait, err := q.put(f, chunk, released); wait != nil || err != nil {
		t.Errorf("one that was let in waits again: %v", err)
	}
	q.leave(waits[1])
	if n := open(); n != releases+1 {
		t.Errorf("one that was let in left, and %d are in", n)
	}
	for n := 0; ; n++ {
		if _, _, err := q.put(f, chunk, forced); err != nil {
			break
		}
		if n > 2*maxControl/maxChunk {
			t.Fatal("forced frames have no bound")
		}
	}
	q.close(errSilent)
	if _, _, err := q.put(f, nil, inTurn); !errors.Is(err, errSilent) || open() != 2*releases-1 {
		t.Errorf("a closed queue: %v, %d let in", err, open())
	}
}
