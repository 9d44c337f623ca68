package hop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// raw is a side of a connection that a test plays by hand.
type raw struct {
	t    testing.TB
	conn net.Conn
}

func dialRaw(t testing.TB, address string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if peer, rest, err := askHello(conn); err != nil || peer.version != version || len(rest) != 0 {
		t.Fatalf("hello: %v %v %v", peer, rest, err)
	}
	return &raw{t, conn}
}

func (r *raw) send(k kind, flags byte, stream uint32, payload []byte) {
	r.t.Helper()
	_, _ = r.conn.Write(appendFrame(nil, k, flags, stream, payload, nil)) // the peer may have hung up
}

func (r *raw) request(id uint32, flags byte) {
	r.t.Helper()
	r.send(kindRequest, flags, id, headOf(r.t, &requestHead{method: "GET", path: "/", length: -1}))
}

func headOf(t testing.TB, h *requestHead) []byte {
	t.Helper()
	b, err := appendRequest(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// frames reads until the peer hangs up.
func (r *raw) frames() (all []frame) {
	r.t.Helper()
	_ = r.conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(r.conn)
	if errors.Is(err, context.DeadlineExceeded) {
		r.t.Error("the peer did not hang up")
	}
	for {
		f, size, err := parseFrame(got)
		if err != nil || size == 0 {
			return all
		}
		all, got = append(all, f), got[size:]
	}
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// TestServerHangsUp on whoever breaks the protocol.
func TestServerHangsUp(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	chunk := make([]byte, maxChunk)
	good := headOf(t, &requestHead{method: "GET", path: "/"})
	for name, do := range map[string]func(*raw){
		"unknown kind":        func(r *raw) { r.send(99, 0, 1, nil) },
		"a second hello":      func(r *raw) { r.send(kindHello, 0, 0, hello{1, 1, window}.payload()) },
		"unknown flags":       func(r *raw) { r.send(kindRequest, 2, 1, good) },
		"no stream":           func(r *raw) { r.send(kindRequest, 1, 0, good) },
		"a stream for a ping": func(r *raw) { r.send(kindPing, 0, 3, nil) },
		"a number again":      func(r *raw) { r.request(1, 0); r.request(1, 0) },
		"a lower number":      func(r *raw) { r.request(2, 0); r.request(1, 0) },
		"data of no request":  func(r *raw) { r.send(kindData, 0, 7, nil) },
		"more than a chunk":   func(r *raw) { r.request(1, 0); r.send(kindData, 0, 1, make([]byte, maxChunk+1)) },
		"more than a frame":   func(r *raw) { _, _ = r.conn.Write([]byte{0xff, 0xff, 0xff, 0xff, byte(kindRequest), 0, 0, 0, 0, 1}) },
		"more than credit": func(r *raw) {
			r.request(1, 0)
			for range window/maxChunk + 1 {
				r.send(kindData, 0, 1, chunk)
			}
		},
		"more after the end":       func(r *raw) { r.request(1, flagEnd); r.send(kindData, 0, 1, chunk) },
		"an answer":                func(r *raw) { r.request(1, flagEnd); r.send(kindAnswer, 0, 1, good) },
		"a drain":                  func(r *raw) { r.send(kindDrain, 0, 0, number(0)) },
		"credit of nothing":        func(r *raw) { r.request(1, flagEnd); r.send(kindCredit, 0, 1, number(0)) },
		"credit without end":       func(r *raw) { r.request(1, flagEnd); r.send(kindCredit, 0, 1, number(maxCredit)) },
		"a head that is cut":       func(r *raw) { r.send(kindRequest, flagEnd, 1, good[:len(good)-1]) },
		"a head without a method":  func(r *raw) { r.send(kindRequest, flagEnd, 1, headOf(t, &requestHead{path: "/"})) },
		"a head without a path":    func(r *raw) { r.send(kindRequest, flagEnd, 1, headOf(t, &requestHead{method: "GET"})) },
		"a head of another length": func(r *raw) { r.send(kindRequest, flagEnd, 1, append(number(1<<20), good...)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := dialRaw(t, p.l.Addr().String())
			do(r)
			for _, f := range r.frames() {
				if f.kind != kindPing {
					t.Errorf("it answered with %+v", f)
				}
			}
		})
	}
}

// TestClientHangsUp on a server that breaks the protocol; what it asked may have
// been taken.
func TestClientHangsUp(t *testing.T) {
	answer := func(status int) []byte {
		b, err := appendAnswer(nil, status, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, do := range map[string]func(*raw){
		"a request":                func(r *raw) { r.request(1, flagEnd) },
		"a body without an answer": func(r *raw) { r.send(kindData, 0, 1, []byte("x")) },
		"two answers":              func(r *raw) { r.send(kindAnswer, 0, 1, answer(200)); r.send(kindAnswer, 0, 1, answer(200)) },
		"an unasked answer":        func(r *raw) { r.send(kindAnswer, 0, 5, answer(200)) },
		"no status":                func(r *raw) { r.send(kindAnswer, flagEnd, 1, answer(0)) },
		"an interim status":        func(r *raw) { r.send(kindAnswer, flagEnd, 1, answer(100)) },
		"noise":                    func(r *raw) { _, _ = r.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			l := listener(t)
			hung := make(chan struct{})
			go func() {
				defer close(hung)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _, _ = readHello(conn)
				r := &raw{t, conn}
				r.send(kindHello, 0, 0, hello{version, 10, window}.payload())
				_, _ = io.ReadFull(conn, make([]byte, frameHead)) // it has asked
				do(r)
				_, _ = io.Copy(io.Discard, conn)
			}()
			c := NewClient(Config{Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }})
			err := c.Call(within(t), &Request{Method: "GET", Path: "/"}, httptest.NewRecorder())
			if !errors.Is(err, errProtocol) || errors.Is(err, ErrNotTaken) {
				t.Errorf("%v", err)
			}
			<-hung
			c.Close()
		})
	}
}

// TestTooManyRequests: a server refuses what is too much, and says that it did not
// take it.
func TestTooManyRequests(t *testing.T) {
	p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	r := dialRaw(t, p.l.Addr().String())
	const most = refuseFactor * maxStreams
	for id := uint32(1); id <= most+1; id++ {
		r.request(id, flagEnd)
	}
	f := r.next()
	if f.kind != kindReset || f.stream != most+1 || cause(f.payload[0]) != causeRefused {
		t.Errorf("it said %+v", f)
	}
}

// next is the next frame that is no ping.
func (r *raw) next() frame {
	r.t.Helper()
	_ = r.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		head := make([]byte, frameHead)
		if _, err := io.ReadFull(r.conn, head); err != nil {
			r.t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(r.conn, b); err != nil {
			r.t.Fatal(err)
		}
		f, _, err := parseFrame(append(head, b...))
		if err != nil {
			r.t.Fatal(err)
		}
		if f.kind != kindPing {
			return f
		}
		r.send(kindPong, 0, 0, nil)
	}
}

// TestResetReachesTheHandler, and a late one harms nobody.
func TestResetReachesTheHandler(t *testing.T) {
	gone := make(chan error, 1)
	p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		gone <- context.Cause(r.Context())
	}))
	r := dialRaw(t, p.l.Addr().String())
	r.request(1, 0)
	r.send(kindReset, 0, 1, []byte{byte(causeGone)})
	if err := <-gone; !errors.Is(err, errGone) {
		t.Error(err)
	}
	r.send(kindReset, 0, 1, []byte{byte(causeGone)})
	r.send(kindData, flagEnd, 1, []byte("late"))
	r.send(kindPing, 0, 0, nil)
	for r.next().kind != kindPong {
	}
}

func TestHello(t *testing.T) {
	p := newPair(t, http.HandlerFunc(echo))
	say := func(first []byte) (hello, error) {
		conn, err := net.Dial("tcp", p.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(first); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		h, _, err := readHello(conn)
		return h, err
	}
	later := append(hello{version + 8, 7, window}.payload(), "more that a later version says"...)
	if h, err := say(appendFrame(nil, kindHello, 0, 0, later, nil)); err != nil || h.version != version || h.streams != maxStreams || h.window != window {
		t.Errorf("a later version is answered with %+v, %v", h, err)
	}
	for name, first := range map[string][]byte{
		"an older version": appendFrame(nil, kindHello, 0, 0, hello{oldest - 1, 1, window}.payload(), nil),
		"a small window":   appendFrame(nil, kindHello, 0, 0, hello{1, 1, minWindow - 1}.payload(), nil),
		"no streams":       appendFrame(nil, kindHello, 0, 0, hello{1, 0, window}.payload(), nil),
		"half a hello":     appendFrame(nil, kindHello, 0, 0, []byte{1}, nil),
		"a ping":           appendFrame(nil, kindPing, 0, 0, nil, nil),
		"HTTP":             []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	} {
		if _, err := say(first); err == nil {
			t.Errorf("%s was answered", name)
		}
	}
}

// TestFutureServer: a client refuses a version that it did not offer.
func TestFutureServer(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_, _, _ = readHello(far)
		_, _ = far.Write(appendFrame(nil, kindHello, 0, 0, hello{version + 1, 1, window}.payload(), nil))
	}()
	if _, _, err := askHello(near); !errors.Is(err, errProtocol) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for i, name := range names {
		if codeOf(name) != byte(i+1) || !travels(name) {
			t.Errorf("%s is %d, not %d", name, codeOf(name), i+1)
		}
	}
	if _, ok := nameOf(byte(len(names) + 1)); ok || codeOf("Else") != 0 {
		t.Error("a name that is none")
	}
}

// TestGolden pins the bytes: other releases speak them too.
func TestGolden(t *testing.T) {
	head := headOf(t, &requestHead{timeout: 4 * time.Second, length: 2, method: "PUT", path: "/a", query: "b=c",
		header: http.Header{"If-Match": {`"5"`}}})
	got := appendFrame(nil, kindRequest, flagEnd, 7, head, []byte("{}"))
	want := "\x00\x00\x00\x1a\x02\x01\x00\x00\x00\x07" + "\x00\x00\x00\x14" + "\xa0\x1f\x03" + "\x03PUT\x02/a\x03b=c" + "\x01\x03\x03\"5\"" + "{}"
	binaryEqual(t, "request", got, want)
	answer, err := appendAnswer(nil, 404, http.Header{"X-Odd": {"y"}})
	if err != nil {
		t.Fatal(err)
	}
	binaryEqual(t, "answer", appendFrame(nil, kindAnswer, flagEnd, 7, answer, nil),
		"\x00\x00\x00\x10\x03\x01\x00\x00\x00\x07"+"\x00\x00\x00\x0c"+"\x94\x03"+"\x01\x00\x05X-Odd\x01y")
	binaryEqual(t, "hello", appendFrame(nil, kindHello, 0, 0, hello{1, 1024, 65536}.payload(), nil),
		"\x00\x00\x00\x09\x01\x00\x00\x00\x00\x00"+"\x01\x00\x00\x04\x00\x00\x01\x00\x00")
}

func binaryEqual(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s:\n%q, want\n%q", what, got, want)
	}
}

// FuzzFrames: whatever comes, decoding is bounded and does not panic, and what is
// taken is encoded to the same again.
func FuzzFrames(f *testing.F) {
	head, err := appendRequest(nil, &requestHead{timeout: time.Second, method: "GET", path: "/a", query: "b", header: http.Header{"Accept": {"x"}, "Other": {"y", "z"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendFrame(nil, kindRequest, flagEnd, 1, head, []byte("body")))
	answer, err := appendAnswer(nil, 200, http.Header{"Etag": {`"5"`}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendFrame(nil, kindAnswer, 0, 1, answer, nil))
	f.Add(appendFrame(nil, kindHello, 0, 0, hello{1, 1, window}.payload(), nil))
	f.Add([]byte(strings.Repeat("\x00", 64)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			got, size, err := parseFrame(b)
			if err != nil || size == 0 {
				return
			}
			if again := appendFrame(nil, got.kind, got.flags, got.stream, got.payload, nil); !bytes.Equal(again, b[:size]) {
				t.Fatalf("%q became %q", b[:size], again)
			}
			fuzzHeads(t, got)
			b = b[size:]
		}
	})
}

func fuzzHeads(t *testing.T, f frame) {
	switch f.kind {
	case kindHello:
		_, _ = parseHello(f.payload)
	case kindRequest:
		head, _, err := splitHead(f.payload)
		if err != nil {
			return
		}
		in, err := parseRequest(head)
		if err != nil {
			return
		}
		b, err := appendRequest(nil, &in)
		if err != nil {
			t.Fatalf("%+v cannot be sent: %v", in, err)
		}
		again, err := parseRequest(string(b[4:]))
		if err != nil || again.path != in.path || again.timeout != in.timeout || again.length != in.length || !maps.EqualFunc(again.header, in.header, slices.Equal) {
			t.Fatalf("%+v became %+v, %v", in, again, err)
		}
	case kindAnswer:
		if head, _, err := splitHead(f.payload); err == nil {
			_, _ = parseAnswer(head, make(http.Header))
		}
	}
}
