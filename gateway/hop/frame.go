package hop

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Protocol is the name in the TLS handshake (ALPN) under which a port speaks this.
const Protocol = "celld-hop"

// version is the newest form of what goes over a connection, oldest the oldest one
// that is still spoken.
const (
	version = 1
	oldest  = 1
)

// Bounds of one connection. They belong to the version.
const (
	frameHead  = 10        // bytes in front of every payload
	maxHead    = 160 << 10 // of a request or an answer: more than any front door lets in
	maxChunk   = 16 << 10  // of a body in one frame
	maxFrame   = 4 + maxHead + maxChunk
	maxHeaders = 96 // lines: more than any front door lets in
	minWindow  = maxChunk
	maxCredit  = 1 << 30
	maxID      = 1<<32 - 1
)

// kind is what a frame is.
type kind uint8

const (
	kindHello   kind = iota + 1 // the first frame each way
	kindRequest                 // opens a stream
	kindAnswer                  // begins the answer
	kindData                    // more of a body
	kindCredit                  // so many more bytes of the body may come
	kindReset                   // nothing more of the stream: a cause
	kindPing                    // asks for kindPong
	kindPong                    //
	kindDrain                   // the highest stream that was taken; no other will be
)

// flagEnd marks the last frame of a body.
const flagEnd = 1

// cause is why a stream is reset.
type cause uint8

const (
	causeGone    cause = iota + 1 // whoever asked has gone, or its time is up
	causeAborted                  // the handler gave up
	causeRefused                  // too many requests under way: not taken
)

// frame is one frame. Its payload is valid until the next read.
type frame struct {
	kind    kind
	flags   byte
	stream  uint32
	payload []byte
}

var errProtocol = errors.New("the peer breaks the protocol")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// appendFrame appends a frame whose payload is head and then body.
func appendFrame(b []byte, k kind, flags byte, stream uint32, head, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)+len(body)))
	b = append(b, byte(k), flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	b = append(b, head...)
	return append(b, body...)
}

// parseFrame takes the first frame from b. size is 0 while it is not whole.
func parseFrame(b []byte) (f frame, size int, err error) {
	if len(b) < frameHead {
		return f, 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	f = frame{kind: kind(b[4]), flags: b[5], stream: binary.BigEndian.Uint32(b[6:])}
	if err := f.check(n); err != nil {
		return f, 0, err
	}
	size = frameHead + int(n)
	if len(b) < size {
		return f, 0, nil
	}
	f.payload = b[frameHead:size:size]
	return f, size, nil
}

// check holds a frame's head against what its kind allows, before anything is kept
// of it.
func (f *frame) check(n uint32) error {
	ofStream, flags, least, most := true, byte(0), 0, 0
	switch f.kind {
	case kindHello:
		ofStream, least, most = false, helloSize, 256
	case kindRequest, kindAnswer:
		flags, least, most = flagEnd, 4, maxFrame
	case kindData:
		flags, most = flagEnd, maxChunk
	case kindCredit:
		least, most = 4, 4
	case kindReset:
		least, most = 1, 1
	case kindPing, kindPong:
		ofStream = false
	case kindDrain:
		ofStream, least, most = false, 4, 4
	default:
		return broken("a frame of the kind %d", f.kind)
	}
	switch {
	case int64(n) < int64(least) || int64(n) > int64(most):
		return broken("a frame of the kind %d has %d bytes", f.kind, n)
	case f.flags&^flags != 0:
		return broken("a frame of the kind %d has the flags %#x", f.kind, f.flags)
	case ofStream != (f.stream != 0):
		return broken("a frame of the kind %d for the stream %d", f.kind, f.stream)
	}
	return nil
}

// hello is what each side says first.
type hello struct {
	version uint8
	streams uint32 // that it lets be under way at once
	window  uint32 // bytes of a body that it takes before it gives credit
}

const helloSize = 9

func (h hello) payload() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, h.version)
	b = binary.BigEndian.AppendUint32(b, h.streams)
	return binary.BigEndian.AppendUint32(b, h.window)
}

// parseHello leaves bytes behind those that it knows to later versions.
func parseHello(b []byte) (hello, error) {
	if len(b) < helloSize {
		return hello{}, broken("a hello of %d bytes", len(b))
	}
	h := hello{version: b[0], streams: binary.BigEndian.Uint32(b[1:]), window: binary.BigEndian.Uint32(b[5:])}
	switch {
	case h.version < oldest:
		return h, fmt.Errorf("the peer speaks version %d of %s, this program %d to %d: upgrade the peer", h.version, Protocol, oldest, version)
	case h.streams == 0 || h.window < minWindow || h.window > maxCredit:
		return h, broken("a hello with %d streams and a window of %d", h.streams, h.window)
	}
	return h, nil
}
