package port

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestHeldPortIsListenedOnAgainAndAgain(t *testing.T) {
	p, err := Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := p.Listen()
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		closed(t, c)
		closed(t, l)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a held port that nobody listens on answers %v", err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, addr := range []string{"", "8080", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		if _, err := Reserve(addr); err == nil {
			t.Errorf("%q passes", addr)
		}
	}
}
