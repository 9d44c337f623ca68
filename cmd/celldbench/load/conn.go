package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Requests makes the next request of one connection, ready for the wire, and says
// of what class it is. The bytes are valid until the next call.
type Requests interface {
	Next() (request []byte, class int)
}

// Same makes one request again and again.
type Same []byte

// Next implements Requests.
func (s Same) Next() (request []byte, class int) { return s, 0 }

// patience is the most that one call may take, and half of it the least that is
// granted; a server that answers nothing fails the run rather than holding it.
const patience = 30 * time.Second

// Conn is a Caller that sends requests over one keep-alive connection. It knows as much of HTTP as
// celld and net/http need to be told apart from something else: a status line and
// a body of announced length.
type Conn struct {
	addr string
	from Requests
	want int // the one good status

	c     net.Conn
	renew time.Time // when the deadline of c is moved on
	r     *bufio.Reader
	start []byte // of a body that came with a wrong status
}

const readBuffer = 8 << 10

// NewConn makes a connection to addr that opens when it is first used. want is the
// one good status.
func NewConn(addr string, from Requests, want int) *Conn {
	return &Conn{addr: addr, from: from, want: want, r: bufio.NewReaderSize(nil, readBuffer)}
}

// Call implements Caller.
func (c *Conn) Call(ctx context.Context) (class int, err error) {
	request, class := c.from.Next()
	return class, c.send(ctx, request)
}

func (c *Conn) send(ctx context.Context, request []byte) error {
	if c.c == nil {
		d := net.Dialer{Timeout: patience}
		dialed, err := d.DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return err
		}
		c.c, c.renew = dialed, time.Time{}
		c.r.Reset(dialed)
	}
	status, again, err := c.exchange(request)
	if err != nil || !again {
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return err
	}
	if status != c.want {
		return fmt.Errorf("status %d, want %d: %s", status, c.want, c.start)
	}
	return nil
}

// Close implements Caller.
func (c *Conn) Close() error {
	if c.c == nil {
		return nil
	}
	err := c.c.Close()
	c.c = nil
	return err
}

// exchange sends one request and reads its answer; again says whether the
// connection may carry another.
func (c *Conn) exchange(request []byte) (status int, again bool, err error) {
	// Setting a deadline costs a timer, so one serves many calls.
	if now := time.Now(); now.After(c.renew) {
		if err := c.c.SetDeadline(now.Add(patience)); err != nil {
			return 0, false, err
		}
		c.renew = now.Add(patience / 2)
	}
	if _, err := c.c.Write(request); err != nil {
		return 0, false, err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	if len(line) < len("HTTP/1.1 200\r\n") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, false, fmt.Errorf("not a status line: %q", line)
	}
	if status, err = number(line[9:12]); err != nil {
		return 0, false, err
	}
	length, again, err := c.headers()
	if err != nil {
		return 0, false, err
	}
	c.start = c.start[:0]
	if status != c.want {
		head, err := c.r.Peek(min(length, 300))
		if err != nil {
			return 0, false, err
		}
		c.start = append(c.start, head...)
	}
	_, err = c.r.Discard(length)
	return status, again, err
}

func (c *Conn) headers() (length int, again bool, err error) {
	length, again = -1, true
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		// Few headers have a name of these lengths, so most lines cost one look.
		switch {
		case len(line) > 15 && line[14] == ':' && bytes.EqualFold(line[:14], []byte("Content-Length")):
			if length, err = number(bytes.TrimSpace(line[15:])); err != nil {
				return 0, false, err
			}
		case len(line) > 11 && line[10] == ':' && bytes.EqualFold(line[:10], []byte("Connection")):
			again = !bytes.EqualFold(bytes.TrimSpace(line[11:]), []byte("close"))
		}
	}
	if length < 0 {
		return 0, false, errors.New("an answer without Content-Length")
	}
	return length, again, nil
}

func number(b []byte) (int, error) {
	n := 0
	for _, d := range b {
		if d < '0' || d > '9' || n > 1<<30 {
			return 0, fmt.Errorf("not a number: %q", strconv.Quote(string(b)))
		}
		n = n*10 + int(d-'0')
	}
	if len(b) == 0 {
		return 0, errors.New("an empty number")
	}
	return n, nil
}
