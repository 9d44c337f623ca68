package hop

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Why a connection or a stream ends.
var (
	errEnded   = errors.New("the connection has ended")
	errDrained = errors.New("the connection takes no more requests")
	errSilent  = errors.New("the peer does not answer")
	errStuck   = errors.New("the peer does not read")
	errTimeout = errors.New("the request's time is up")
	errGone    = errors.New("whoever asked has gone")
)

// timing is how patient a connection is. Times are counted in ticks, so that a
// process that was stopped does not take itself for a silent peer.
type timing struct {
	dial  time.Duration // until a connection has said hello, on the asking side
	tick  time.Duration // how often it looks; deadlines are kept that exactly
	quiet time.Duration // silence, while requests are under way, before it pings
	idle  time.Duration // silence, while none are
	pong  time.Duration // further silence until the peer counts as lost
	write time.Duration // how long one write may take
	spare time.Duration // how long the asking side keeps a connection without requests
	close time.Duration // how long it waits for the peer to close too
}

func defaultTiming() timing {
	return timing{dial: 2 * time.Second, tick: 250 * time.Millisecond, quiet: 1500 * time.Millisecond, idle: 15 * time.Second, pong: 2500 * time.Millisecond,
		write: 5 * time.Second, spare: time.Minute, close: time.Second}
}

const (
	window     = 64 << 10 // bytes of a body that are taken ahead of its reader
	maxStreams = 1024     // requests under way on one connection
	readBuffer = 32 << 10
)

// link is one connection with the requests under way on it.
type link struct {
	conn   net.Conn
	timing timing
	peer   hello
	serves *session      // nil on the side that asks
	slots  chan struct{} // of requests under way; nil on the side that serves

	mu       sync.Mutex // before a stream's
	streams  map[uint32]*stream
	last     uint32 // the highest stream so far
	draining bool   // no more requests
	err      error
	shut     atomic.Bool // draining, or ended

	out   *queue
	done  chan struct{} // closed with err
	heard atomic.Uint64 // reads
	work  sync.WaitGroup
}

func newLink(conn net.Conn, peer hello, t timing) *link {
	return &link{conn: conn, timing: t, peer: peer, streams: make(map[uint32]*stream), out: newQueue(), done: make(chan struct{})}
}

// start starts the reader, the writer and the keeper. rest is what was read behind
// the hello.
func (l *link) start(rest []byte) {
	l.work.Go(func() { l.fail(l.read(rest)) })
	l.work.Go(l.write)
	l.work.Go(l.keep)
}

// fail ends the connection and everything on it; the first reason counts.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	l.shut.Store(true)
	handed := l.out.close(err)
	for _, s := range l.streams {
		if l.serves == nil && s.at >= handed {
			s.fail(notTaken(err)) // it never left
		} else {
			s.fail(err)
		}
	}
	close(l.done)
	conn := l.conn
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn() // without a farewell, which could block
	}
	_ = conn.Close() // it is over either way
}

// retire lets what is under way end, and the connection with it.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	l.shut.Store(true)
	if len(l.streams) == 0 {
		l.out.end()
	}
}

// remove forgets a stream that its owner has done with.
func (l *link) remove(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, s.id)
	if l.draining && len(l.streams) == 0 {
		l.out.end()
	}
}

// open sends a request and makes it known, in the order of their numbers: the
// peer's drain goes by them. It may have to wait for room first, as queue.put.
func (l *link) open(s *stream, flags byte, head, body []byte, how manner) (wait chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return nil, l.err
	case l.draining:
		return nil, errDrained
	}
	id := l.last + 1
	at, wait, err := l.out.put(frame{kind: kindRequest, flags: flags, stream: id, payload: head}, body, how)
	if wait != nil || err != nil {
		return wait, err
	}
	l.last, s.id, s.at = id, id, at
	l.streams[id] = s
	if id == maxID { // the numbers are used up
		l.draining = true
		l.shut.Store(true)
	}
	return nil, nil
}

// enqueue opens a stream, as soon as there is room. An error says that nothing was
// sent; a place in the queue goes to whoever is next.
func (l *link) enqueue(ctx context.Context, s *stream, flags byte, head, body []byte) error {
	var turn chan struct{}
	for how := inTurn; ; how = released {
		wait, err := l.open(s, flags, head, body, how)
		if err != nil && turn != nil {
			l.out.leave(turn)
		}
		switch {
		case errors.Is(err, errDrained):
			return err
		case err != nil:
			return notTaken(err)
		case wait == nil:
			return nil
		}
		select {
		case <-wait:
			turn = wait
		case <-ctx.Done():
			l.out.leave(wait)
			return notTaken(context.Cause(ctx))
		}
	}
}

// send puts a frame and waits for room until done.
func (l *link) send(f frame, body []byte, done <-chan struct{}) error {
	for how := inTurn; ; how = released {
		_, wait, err := l.out.put(f, body, how)
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-done:
			l.out.leave(wait)
			return errGone
		}
	}
}

// say puts a frame that may not wait.
func (l *link) say(k kind, stream uint32, payload []byte) error {
	_, _, err := l.out.put(frame{kind: k, stream: stream, payload: payload}, nil, forced)
	if errors.Is(err, errEnded) {
		return nil // the last word is out already
	}
	return err
}

// credit lets the peer send n more bytes.
func (l *link) credit(s *stream, n int) error {
	if n == 0 {
		return nil
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	return l.say(kindCredit, s.id, b[:])
}

func (l *link) reset(s *stream, why cause) {
	_ = l.say(kindReset, s.id, []byte{byte(why)}) // a connection that has ended has reset it too
}

// write is the writer's goroutine.
func (l *link) write() {
	var batch []byte
	for {
		if batch = l.out.take(batch, l.done); batch == nil {
			break
		}
		l.out.batches.Add(1)
		_, err := l.conn.Write(batch)
		l.out.batches.Add(1)
		if err != nil {
			l.fail(err)
			return
		}
	}
	// All is said. The peer closes when it has read it; the keeper waits for that.
	if half, ok := l.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		l.fail(errEnded)
	}
}

// read is the reader's goroutine. It waits for nobody but the peer.
func (l *link) read(rest []byte) error {
	buf := make([]byte, max(readBuffer, len(rest)))
	from, to := 0, copy(buf, rest)
	for {
		f, size, err := parseFrame(buf[from:to])
		if err != nil {
			return err
		}
		if size > 0 {
			if err := l.receive(f); err != nil {
				return err
			}
			from += size
			continue
		}
		buf, from, to = makeRoom(buf, from, to)
		n, err := l.conn.Read(buf[to:])
		to += n
		l.heard.Add(1)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return errEnded
			}
			return err
		}
	}
}

// makeRoom moves what is left to the front, in a buffer that holds the whole frame.
func makeRoom(buf []byte, from, to int) ([]byte, int, int) {
	need := readBuffer
	if left := buf[from:to]; len(left) >= frameHead {
		need = max(need, frameHead+int(binary.BigEndian.Uint32(left)))
	}
	if from == to && len(buf) == need {
		return buf, 0, 0
	}
	if len(buf) < need || from == to && len(buf) > need {
		grown := make([]byte, need)
		return grown, 0, copy(grown, buf[from:to])
	}
	if len(buf)-to < len(buf)/4 {
		return buf, 0, copy(buf, buf[from:to])
	}
	return buf, from, to
}

// receive acts on one frame.
func (l *link) receive(f frame) error {
	switch f.kind {
	case kindPing:
		return l.say(kindPong, 0, nil)
	case kindPong:
		return nil
	case kindRequest:
		if l.serves == nil {
			return broken("a request to the side that asks")
		}
		return l.serves.request(f)
	case kindDrain:
		if l.serves != nil {
			return broken("a drain from the side that asks")
		}
		l.drained(binary.BigEndian.Uint32(f.payload))
		return nil
	case kindAnswer, kindData, kindCredit, kindReset:
		return l.deliver(f)
	}
	return broken("a frame of the kind %d", f.kind)
}

// deliver takes a frame to its stream. One that is over is no mistake: the frame
// was under way.
func (l *link) deliver(f frame) error {
	l.mu.Lock()
	s := l.streams[f.stream]
	if s == nil {
		defer l.mu.Unlock()
		if f.stream > l.last {
			return broken("a frame for the stream %d, which nobody has opened", f.stream)
		}
		return nil
	}
	defer l.mu.Unlock()
	end := f.flags&flagEnd != 0
	switch f.kind {
	case kindAnswer:
		if l.serves != nil {
			return broken("an answer from the side that asks")
		}
		n := binary.BigEndian.Uint32(f.payload)
		if n > maxHead || int(n)+4 > len(f.payload) {
			return broken("a head of %d bytes in a frame of %d", n, len(f.payload))
		}
		return s.deliver(f.payload, true, int(n)+4, end)
	case kindData:
		if l.serves == nil && !s.answered { // answered is written with l.mu held
			return broken("a body without an answer")
		}
		return s.deliver(f.payload, false, 0, end)
	case kindCredit:
		n := binary.BigEndian.Uint32(f.payload)
		return s.grant(int(min(n, maxCredit+1)))
	}
	switch cause(f.payload[0]) {
	case causeRefused:
		s.fail(notTaken(errors.New("too many requests under way")))
	case causeAborted:
		s.fail(errAborted)
	default:
		s.fail(errGone)
	}
	return nil
}

// drained is the asking side's: no stream above last was taken.
func (l *link) drained(last uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	l.shut.Store(true)
	for id, s := range l.streams {
		if id > last {
			s.fail(notTaken(errDrained))
		}
	}
	if len(l.streams) == 0 {
		l.out.end()
	}
}
