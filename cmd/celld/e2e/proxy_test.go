package e2e

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// link is a TCP proxy that stands for the network between two processes. While it
// is cut, bytes and new connections go nowhere, as when a cable is pulled: nobody
// is told.
type link struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	whole  chan struct{} // closed while the link is not cut
	conns  map[net.Conn]bool
	closed bool
}

// newLink makes a link to target that ends with the test.
func newLink(t testing.TB, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	whole := make(chan struct{})
	close(whole)
	k := &link{listener: l, target: target, whole: whole, conns: map[net.Conn]bool{}}
	k.wg.Go(k.accept)
	t.Cleanup(k.close)
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

// cut stops everything that passes.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.whole:
		k.whole = make(chan struct{})
	default:
	}
}

// heal ends the connections that were cut, whose ends have given them up or will,
// and lets new ones through.
func (k *link) heal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.whole:
		return
	default:
	}
	for c := range k.conns {
		c.Close()
	}
	close(k.whole)
}

func (k *link) close() {
	k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for c := range k.conns {
		c.Close()
	}
	select {
	case <-k.whole:
	default:
		close(k.whole)
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// pass waits until the link is whole.
func (k *link) pass() {
	k.mu.Lock()
	whole := k.whole
	k.mu.Unlock()
	<-whole
}

// keep remembers a connection so that it ends with the link.
func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		c.Close()
		return false
	}
	k.conns[c] = true
	return true
}

func (k *link) drop(c net.Conn) {
	c.Close()
	k.mu.Lock()
	delete(k.conns, c)
	k.mu.Unlock()
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		if k.keep(c) {
			k.wg.Go(func() { k.serve(c) })
		}
	}
}

func (k *link) serve(from net.Conn) {
	defer k.drop(from)
	k.pass()
	to, err := net.Dial("tcp", k.target)
	if err != nil || !k.keep(to) {
		return
	}
	defer k.drop(to)
	k.wg.Go(func() { k.carry(from, to) })
	k.carry(to, from)
}

// carry moves bytes in one direction until either end is closed.
func (k *link) carry(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		k.pass()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				to.Close()
				return
			}
			if half, ok := to.(*net.TCPConn); ok && half.CloseWrite() == nil {
				return
			}
			to.Close()
			return
		}
	}
}
