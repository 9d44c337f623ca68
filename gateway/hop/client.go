package hop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstWait = 20 * time.Millisecond
	longWait  = 500 * time.Millisecond // between attempts to connect
	// crowded is how many requests a connection has under way before another one
	// is opened beside it: on few connections more writes fall together.
	crowded = 96
	// defaultConnections is how many connections a client opens at most.
	defaultConnections = 2
)

// Config is what a Client needs.
type Config struct {
	// Dial opens a connection on which the peer has proved who it is, and that it
	// speaks Protocol.
	Dial        func(context.Context) (net.Conn, error)
	Connections int // at most; 0 for 2
}

// Client asks one node over a few connections. Its methods may be called from any
// goroutine. It owns the goroutines of its connections and of dialing; Close waits
// for them.
type Client struct {
	dial   func(context.Context) (net.Conn, error)
	most   int
	timing timing
	pool   sync.Pool // of *asking

	links atomic.Pointer[[]*link] // the slice is replaced, never changed

	mu      sync.Mutex
	dialing chan struct{} // closed when the attempt that is under way is over; nil for none
	failed  error         // of the last attempt
	until   time.Time     // no attempt before
	delay   time.Duration
	closed  bool

	life context.Context // of attempts to connect
	end  context.CancelFunc
	work sync.WaitGroup
}

var errClosed = errors.New("the client is closed")

// NewClient makes a client. It connects when there is something to ask.
func NewClient(cfg Config) *Client {
	c := &Client{dial: cfg.Dial, most: cfg.Connections, timing: defaultTiming()}
	if c.most == 0 {
		c.most = defaultConnections
	}
	c.pool.New = func() any { return &asking{stream: newStream()} }
	c.links.Store(&[]*link{})
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Close lets requests under way end, takes no more, and closes the connections.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	links := *c.links.Load()
	c.mu.Unlock()
	c.end()
	for _, l := range links {
		l.retire()
	}
	c.work.Wait()
}

// pick returns the connection with the fewest requests, nil if there is none, and
// sees to another one where all are crowded.
func (c *Client) pick() *link {
	var best *link
	links := *c.links.Load()
	usable := 0
	for _, l := range links {
		if l.shut.Load() {
			continue
		}
		usable++
		if best == nil || len(l.slots) < len(best.slots) {
			best = l
		}
	}
	if best != nil && usable < c.most && len(best.slots) >= crowded && c.mu.TryLock() {
		_, _ = c.attempt() // best will do if it fails
		c.mu.Unlock()
	}
	return best
}

// link returns a connection to ask on, and waits for one until ctx ends.
func (c *Client) link(ctx context.Context) (*link, error) {
	for {
		if l := c.pick(); l != nil {
			return l, nil
		}
		c.mu.Lock()
		wait, err := c.attempt()
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// attempt returns what tells the end of an attempt to connect. It begins one
// unless one is under way or the last one has failed just now. mu is held.
func (c *Client) attempt() (<-chan struct{}, error) {
	switch {
	case c.closed:
		return nil, errClosed
	case c.dialing != nil:
		return c.dialing, nil
	case c.failed != nil && time.Now().Before(c.until):
		return nil, c.failed
	}
	c.dialing = make(chan struct{})
	c.work.Go(c.connect)
	return c.dialing, nil
}

// connect makes one connection and stays with it until it has ended.
func (c *Client) connect() {
	l, rest, err := c.greet()
	c.mu.Lock()
	if err == nil && c.closed {
		err = errors.Join(errClosed, l.conn.Close())
	}
	if err != nil {
		c.failed = err
		c.delay = min(max(2*c.delay, firstWait), longWait)
		c.until = time.Now().Add(c.delay/2 + rand.N(c.delay))
	} else {
		c.failed, c.delay = nil, 0
		l.start(rest)
		links := append(slices.Clone(*c.links.Load()), l)
		c.links.Store(&links)
	}
	close(c.dialing)
	c.dialing = nil
	c.mu.Unlock()
	if err != nil {
		return
	}
	l.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	links := slices.DeleteFunc(slices.Clone(*c.links.Load()), func(other *link) bool { return other == l })
	c.links.Store(&links)
}

// greet dials and says hello.
func (c *Client) greet() (*link, []byte, error) {
	ctx, cancel := context.WithTimeout(c.life, c.timing.dial)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) }) // ends what waits
	peer, rest, err := askHello(conn)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("say hello: %w", err), conn.Close())
	}
	l := newLink(conn, peer, c.timing)
	l.slots = make(chan struct{}, min(maxStreams, peer.streams))
	return l, rest, nil
}

// askHello is the asking side's hello: it offers its version and takes the one
// that the other side answers with.
func askHello(conn net.Conn) (peer hello, rest []byte, err error) {
	own := hello{version: version, streams: maxStreams, window: window}
	if _, err := conn.Write(appendFrame(nil, kindHello, 0, 0, own.payload(), nil)); err != nil {
		return peer, nil, err
	}
	if peer, rest, err = readHello(conn); err == nil && peer.version > version {
		err = broken("it chose the version %d of %d", peer.version, version)
	}
	return peer, rest, err
}

// readHello reads the first frame, and returns what came behind it.
func readHello(conn net.Conn) (peer hello, rest []byte, err error) {
	buf := make([]byte, 0, 512)
	for {
		f, size, err := parseFrame(buf)
		switch {
		case err != nil:
			return peer, nil, err
		case size > 0 && f.kind != kindHello:
			return peer, nil, broken("it begins with a frame of the kind %d", f.kind)
		case size > 0:
			peer, err = parseHello(f.payload)
			return peer, buf[size:], err
		case len(buf) == cap(buf):
			return peer, nil, broken("it does not begin with a hello")
		}
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n == 0 && err != nil {
			return peer, nil, err
		}
	}
}
