package ship

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"celld/store/fault"
)

// ErrStream says that what was read is not what was sent, or not all of it. Nothing of
// the part in question was used: take it again.
var ErrStream = fault.New(fault.Invalid, "bad-stream", "the stream of a tenant's file is damaged, cut off or another one; take it again")

// ErrBroken says that a copy cannot go on: what was copied so far is of no use.
var ErrBroken = fault.New(fault.Conflict, "copy-broken", "the copy of the tenant's file cannot go on; start it over")

const (
	streamMagic = "celldsh1"

	kindStart  = 'S'
	kindPages  = 'P'
	kindFrames = 'F'
	kindEnd    = 'E'

	chunkHead = 1 + 4 + 4
	// pieceBytes is how many bytes of pages or frames a chunk holds at the most;
	// never less than one of them.
	pieceBytes = 256 << 10
	// maxBody bounds every chunk: whole frames, or one of the largest page.
	maxBody = pieceBytes + 4
	// openingBytes bounds the body of a stream's first chunk.
	openingBytes = len(streamMagic) + 1 + 2 + maxStart + positionBytes
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// opening is a stream's first chunk.
type opening struct {
	kind  byte // kindPages or kindFrames
	start Start
	first uint32   // of pages: the first one to come
	from  Position // of frames: where the first one follows
}

func (o *opening) body() []byte {
	b := append([]byte(streamMagic), o.kind)
	b = o.start.append(b)
	if o.kind == kindPages {
		return binary.BigEndian.AppendUint32(b, o.first)
	}
	return o.from.append(b)
}

func parseOpening(b []byte, kind byte) (o opening, err error) {
	if len(b) < len(streamMagic)+1 || string(b[:len(streamMagic)]) != streamMagic || b[len(streamMagic)] != kind {
		return o, errors.New("not a stream of a tenant's file, or of the other kind")
	}
	o.kind = kind
	var rest []byte
	if o.start, rest, err = parseStart(b[len(streamMagic)+1:]); err != nil {
		return o, err
	}
	switch {
	case kind == kindPages && len(rest) == 4:
		o.first = binary.BigEndian.Uint32(rest)
		return o, nil
	case kind == kindFrames && len(rest) == positionBytes:
		o.from = parsePosition(rest)
		return o, o.from.check()
	}
	return o, errors.New("a first chunk of another length")
}

// sender writes chunks.
type sender struct {
	w   io.Writer
	buf []byte // a chunk: head, number, and room for a piece
}

func newSender(w io.Writer) *sender {
	return &sender{w: w, buf: make([]byte, chunkHead+maxBody)}
}

// room is where n bytes of a piece go.
func (s *sender) room(n int) []byte { return s.buf[chunkHead+4:][:n] }

// piece sends n bytes of room; number says where the first of them belongs.
func (s *sender) piece(kind byte, number uint32, n int) error {
	binary.BigEndian.PutUint32(s.buf[chunkHead:], number)
	return s.chunk(kind, 4+n)
}

func (s *sender) send(kind byte, body []byte) error {
	copy(s.buf[chunkHead:], body)
	return s.chunk(kind, len(body))
}

func (s *sender) chunk(kind byte, n int) error {
	s.buf[0] = kind
	binary.BigEndian.PutUint32(s.buf[1:], uint32(n))
	sum := crc32.Update(0, castagnoli(), s.buf[:5])
	sum = crc32.Update(sum, castagnoli(), s.buf[chunkHead:chunkHead+n])
	binary.BigEndian.PutUint32(s.buf[5:], sum)
	_, err := s.w.Write(s.buf[:chunkHead+n])
	return err
}

// receiver reads chunks. What it refuses is an ErrStream.
type receiver struct {
	r    io.Reader
	buf  []byte
	head [chunkHead]byte
}

func newReceiver(r io.Reader, kind byte) (in *receiver, o opening, err error) {
	in = &receiver{r: r, buf: make([]byte, maxBody)}
	got, body, err := in.next()
	if err == nil && got != kindStart {
		err = ErrStream.Because(fmt.Errorf("it begins with a chunk of kind %q", got))
	}
	if err != nil {
		return nil, o, err
	}
	if o, err = parseOpening(body, kind); err != nil {
		return nil, o, ErrStream.Because(err)
	}
	return in, o, nil
}

// next reads a chunk, good until the next call. Behind the end nothing may follow.
func (in *receiver) next() (kind byte, body []byte, err error) {
	if _, err := io.ReadFull(in.r, in.head[:]); err != nil {
		return 0, nil, cutOff(err)
	}
	kind = in.head[0]
	n := binary.BigEndian.Uint32(in.head[1:])
	limit := map[byte]int{kindStart: openingBytes, kindPages: maxBody, kindFrames: maxBody, kindEnd: pointBytes}[kind]
	if n > uint32(limit) {
		return 0, nil, ErrStream.Because(fmt.Errorf("a chunk of kind %q with %d bytes", kind, n))
	}
	body = in.buf[:n]
	if _, err := io.ReadFull(in.r, body); err != nil {
		return 0, nil, cutOff(err)
	}
	sum := crc32.Update(0, castagnoli(), in.head[:5])
	if crc32.Update(sum, castagnoli(), body) != binary.BigEndian.Uint32(in.head[5:]) {
		return 0, nil, ErrStream.Because(errors.New("a chunk does not match its checksum"))
	}
	if kind == kindEnd {
		var one [1]byte
		if _, err := io.ReadFull(in.r, one[:]); !errors.Is(err, io.EOF) {
			return 0, nil, ErrStream.Because(errors.Join(errors.New("it does not end where it should"), err))
		}
	}
	return kind, body, nil
}

// piece splits the body of a chunk of units of so many bytes each.
func piece(body []byte, unit int) (number uint32, units []byte, err error) {
	if len(body) <= 4 || (len(body)-4)%unit != 0 {
		return 0, nil, ErrStream.Because(fmt.Errorf("a piece of %d bytes", len(body)))
	}
	return binary.BigEndian.Uint32(body), body[4:], nil
}

func parseEnd(body []byte) (p Point, err error) {
	if len(body) != pointBytes {
		return p, ErrStream.Because(fmt.Errorf("an end of %d bytes", len(body)))
	}
	p = parsePoint(body)
	if err := p.check(); err != nil {
		return p, ErrStream.Because(err)
	}
	return p, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrStream.Because(io.ErrUnexpectedEOF)
	}
	return err
}
