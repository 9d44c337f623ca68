package hop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// requestHead is a request without its body.
type requestHead struct {
	timeout time.Duration // 0 for none
	length  int64         // of the body; -1 if it is not known
	method  string
	path    string
	query   string
	header  http.Header
}

// Errors of a head that is not sent.
var (
	errTooLarge   = errors.New("the head is too large for the hop")
	errUnsendable = errors.New("the hop cannot carry it")
)

// appendRequest appends a head with its length in front.
func appendRequest(b []byte, h *requestHead) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	// Rounded up: 0 would be no end at all.
	b = binary.AppendUvarint(b, uint64((h.timeout+time.Millisecond-1)/time.Millisecond))
	b = binary.AppendUvarint(b, uint64(h.length+1))
	b = appendText(b, h.method)
	b = appendText(b, h.path)
	b = appendText(b, h.query)
	return closeHead(b, start, h.header)
}

// appendAnswer does the same for an answer.
func appendAnswer(b []byte, status int, header http.Header) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(status))
	return closeHead(b, start, header)
}

func closeHead(b []byte, start int, header http.Header) ([]byte, error) {
	b, err := appendHeader(b, header)
	if err != nil {
		return b, err
	}
	size := len(b) - start - 4
	if size > maxHead {
		return b, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, size, maxHead)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(size))
	return b, nil
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendHeader(b []byte, h http.Header) ([]byte, error) {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	if n > maxHeaders {
		return b, fmt.Errorf("%w: %d header lines, at most %d", errTooLarge, n, maxHeaders)
	}
	b = binary.AppendUvarint(b, uint64(n))
	for name, values := range h {
		code := codeOf(name)
		if code == 0 && !travels(name) {
			return b, fmt.Errorf("%w: the header name %q", errUnsendable, name)
		}
		for _, value := range values {
			if !oneLine(value) {
				return b, fmt.Errorf("%w: the value of %s has several lines", errUnsendable, name)
			}
			b = append(b, code)
			if code == 0 {
				b = appendText(b, name)
			}
			b = appendText(b, value)
		}
	}
	return b, nil
}

// splitHead parts a payload into its head, copied, and the beginning of the body.
func splitHead(payload []byte) (head string, body []byte, err error) {
	if len(payload) < 4 {
		return "", nil, broken("a head without a length")
	}
	n := binary.BigEndian.Uint32(payload)
	rest := payload[4:]
	if n > maxHead || int(n) > len(rest) || len(rest)-int(n) > maxChunk {
		return "", nil, broken("a head of %d bytes in a frame of %d", n, len(payload))
	}
	return string(rest[:n]), rest[n:], nil
}

func parseRequest(head string) (requestHead, error) {
	c := cursor{s: head}
	timeout, length := c.number(1<<40), c.number(1<<62)
	h := requestHead{timeout: time.Duration(timeout) * time.Millisecond, length: int64(length) - 1,
		method: c.text(), path: c.text(), query: c.text()}
	var err error
	h.header = make(http.Header, 8)
	if err = c.header(h.header); err != nil {
		return h, err
	}
	if !token(h.method) || !strings.HasPrefix(h.path, "/") {
		return h, broken("a request without a method or path")
	}
	return h, nil
}

// parseAnswer adds an answer's header to h.
func parseAnswer(head string, h http.Header) (status int, err error) {
	c := cursor{s: head}
	status = int(c.number(999))
	if err = c.header(h); err == nil && status < 200 {
		err = broken("an answer with the status %d", status)
	}
	return status, err
}

// cursor takes values from a head. After the first mistake it takes nothing.
type cursor struct {
	s   string
	bad bool
}

func (c *cursor) number(most uint64) uint64 {
	var n uint64
	for i := 0; i < len(c.s) && i < binary.MaxVarintLen64; i++ {
		b := c.s[i]
		if i == binary.MaxVarintLen64-1 && b > 1 {
			break
		}
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			c.s = c.s[i+1:]
			if n > most {
				break
			}
			return n
		}
	}
	c.s, c.bad = "", true
	return 0
}

func (c *cursor) text() string {
	n := c.number(maxHead)
	if n > uint64(len(c.s)) {
		c.s, c.bad = "", true
		return ""
	}
	s := c.s[:n]
	c.s = c.s[n:]
	return s
}

// header takes the rest and adds it to h. All values are parts of one string and
// one slice.
func (c *cursor) header(h http.Header) error {
	n := int(c.number(maxHeaders))
	values := make([]string, n)
	for i := range n {
		var name string
		var ok bool
		if c.s == "" {
			c.bad = true
			break
		}
		code := c.s[0]
		c.s = c.s[1:]
		if code == 0 {
			name = c.text()
			ok = travels(name) && codeOf(name) == 0
		} else {
			name, ok = nameOf(code)
		}
		value := c.text()
		if !ok || !oneLine(value) {
			return broken("a header line that is none")
		}
		values[i] = value
		if had := h[name]; had != nil {
			h[name] = append(had, value)
			continue
		}
		h[name] = values[i : i+1 : i+1]
	}
	if c.bad || c.s != "" {
		return broken("a malformed head")
	}
	return nil
}

// travels reports whether a header's name may go as text.
func travels(name string) bool { return token(name) && textproto.CanonicalMIMEHeaderKey(name) == name }

func oneLine(value string) bool {
	return strings.IndexByte(value, '\n') < 0 && strings.IndexByte(value, '\r') < 0 && strings.IndexByte(value, 0) < 0
}

// token reports whether s can be a method or the name of a header.
func token(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return s != ""
}

// names are the headers that travel as one byte, their place from 1 on. The list
// belongs to the version: it grows at its end, with a new one.
var names = [...]string{
	"Accept", "Content-Type", "If-Match", "Celld-Min-Index", "Celld-Consistency", "X-Request-Id", "Celld-Context", "Idempotency-Key",
	"Content-Length", "Etag", "Link", "Location", "Retry-After", "Celld-Index", "Idempotency-Replayed", "Cache-Control",
	"Celld-Leader", "Celld-Epoch", "Celld-Kind", "Allow", "Www-Authenticate",
}

func nameOf(code byte) (string, bool) {
	if int(code) > len(names) {
		return "", false
	}
	return names[code-1], true
}

// codeOf is the inverse of nameOf, 0 for a name that travels as text.
func codeOf(name string) byte {
	switch name {
	case "Accept":
		return 1
	case "Content-Type":
		return 2
	case "If-Match":
		return 3
	case "Celld-Min-Index":
		return 4
	case "Celld-Consistency":
		return 5
	case "X-Request-Id":
		return 6
	case "Celld-Context":
		return 7
	case "Idempotency-Key":
		return 8
	case "Content-Length":
		return 9
	case "Etag":
		return 10
	case "Link":
		return 11
	case "Location":
		return 12
	case "Retry-After":
		return 13
	case "Celld-Index":
		return 14
	case "Idempotency-Replayed":
		return 15
	case "Cache-Control":
		return 16
	case "Celld-Leader":
		return 17
	case "Celld-Epoch":
		return 18
	case "Celld-Kind":
		return 19
	case "Allow":
		return 20
	case "Www-Authenticate":
		return 21
	}
	return 0
}
