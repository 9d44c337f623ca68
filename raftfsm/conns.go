package raftfsm

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("this member's Raft traffic has been cut")

// conns is every open connection of a transport, so that all of them can be
// closed at once: the library leaves connections that it accepted to their
// peers.
type conns struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
	cut  bool
}

type trackedConn struct {
	net.Conn
	in   *conns
	once sync.Once
}

// add starts to track a connection. After cut it closes it instead.
func (c *conns) add(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.Join(errCut, conn.Close())
	}
	t := &trackedConn{Conn: conn, in: c}
	if c.open == nil {
		c.open = make(map[*trackedConn]struct{})
	}
	c.open[t] = struct{}{}
	return t, nil
}

// Close implements net.Conn.
func (t *trackedConn) Close() error {
	t.once.Do(func() {
		t.in.mu.Lock()
		delete(t.in.open, t)
		t.in.mu.Unlock()
	})
	return t.Conn.Close()
}

// isCut reports whether closeAll was called.
func (c *conns) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// closeAll closes every connection, for good.
func (c *conns) closeAll() {
	c.mu.Lock()
	open := c.open
	c.open, c.cut = nil, true
	c.mu.Unlock()
	for t := range open {
		conn := t.Conn
		if c, ok := conn.(*tls.Conn); ok {
			conn = c.NetConn() // without TLS's farewell, which could block
		}
		_ = conn.Close() // it is being abandoned
	}
}
