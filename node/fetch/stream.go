package fetch

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"celld/raftfsm"
	"celld/store/tenant"
)

const (
	streamMagic   = "celldtf1"
	streamVersion = 1
	maxHeader     = 1 << 10
	// pieceBytes is how much one piece holds at the most; never less than a page.
	pieceBytes = 256 << 10
)

// Header says what the pages behind it are.
type Header struct {
	_        struct{} `cbor:",toarray"`
	Version  uint8
	UID      tenant.UID
	Tenant   tenant.ID
	Epoch    tenant.Epoch
	Folder   string // of the incarnation
	AsOf     uint64 // the file holds everything up to here
	PageSize uint32
	Pages    uint32
}

func (h *Header) bytes() int64 { return int64(h.PageSize) * int64(h.Pages) }

func (h *Header) check() error {
	switch {
	case h.Version != streamVersion:
		return fmt.Errorf("a file's stream of version %d; this program reads %d", h.Version, streamVersion)
	case h.PageSize < 512 || h.PageSize > 64<<10 || h.PageSize&(h.PageSize-1) != 0 || h.Pages == 0:
		return fmt.Errorf("a file of %d pages of %d bytes", h.Pages, h.PageSize)
	}
	return nil
}

// sender writes a stream.
type sender struct {
	w   io.Writer
	sum hash.Hash
}

func newSender(w io.Writer, h Header) (*sender, error) {
	body, err := raftfsm.Encode(h)
	if err != nil {
		return nil, err
	}
	s := &sender{w: w, sum: sha256.New()}
	s.sum.Write(body)
	head := binary.BigEndian.AppendUint32([]byte(streamMagic), uint32(len(body)))
	_, err = w.Write(append(head, body...))
	return s, err
}

// piece sends whole pages.
func (s *sender) piece(pages []byte) error {
	s.sum.Write(pages)
	head := binary.BigEndian.AppendUint32(nil, uint32(len(pages)))
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(pages, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := s.w.Write(head); err != nil {
		return err
	}
	_, err := s.w.Write(pages)
	return err
}

func (s *sender) end() error {
	_, err := s.w.Write(s.sum.Sum(make([]byte, 4, 4+sha256.Size)))
	return err
}

// receiver reads a stream.
type receiver struct {
	r    io.Reader
	sum  hash.Hash
	head Header
	left int64 // bytes of pages to come
	buf  []byte
}

func newReceiver(r io.Reader) (*receiver, error) {
	head := make([]byte, len(streamMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("read a file's stream: %w", err)
	}
	size := binary.BigEndian.Uint32(head[len(streamMagic):])
	if string(head[:len(streamMagic)]) != streamMagic || size > maxHeader {
		return nil, errors.New("not a stream of a tenant's file")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("read a stream's header: %w", err)
	}
	in := &receiver{r: r, sum: sha256.New()}
	if err := raftfsm.Decode(body, &in.head); err != nil {
		return nil, fmt.Errorf("undecodable header: %w", err)
	}
	if err := in.head.check(); err != nil {
		return nil, err
	}
	in.sum.Write(body)
	in.left = in.head.bytes()
	in.buf = make([]byte, max(pieceBytes, int(in.head.PageSize)))
	return in, nil
}

// next returns the next piece, good until the next call; io.EOF when all of them
// were read and the whole is what was sent.
func (in *receiver) next() ([]byte, error) {
	var word [4]byte
	if _, err := io.ReadFull(in.r, word[:]); err != nil {
		return nil, unexpected(err)
	}
	n := int64(binary.BigEndian.Uint32(word[:]))
	if n == 0 {
		return nil, in.finish()
	}
	if n > int64(len(in.buf)) || n > in.left || n%int64(in.head.PageSize) != 0 {
		return nil, fmt.Errorf("a piece of %d bytes where %d are to come", n, in.left)
	}
	if _, err := io.ReadFull(in.r, word[:]); err != nil {
		return nil, unexpected(err)
	}
	piece := in.buf[:n]
	if _, err := io.ReadFull(in.r, piece); err != nil {
		return nil, unexpected(err)
	}
	if crc32.Checksum(piece, crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(word[:]) {
		return nil, errors.New("a piece does not match its checksum")
	}
	in.sum.Write(piece)
	in.left -= n
	return piece, nil
}

func (in *receiver) finish() error {
	var sum [sha256.Size]byte
	if _, err := io.ReadFull(in.r, sum[:]); err != nil {
		return unexpected(err)
	}
	if in.left != 0 || sum != [sha256.Size]byte(in.sum.Sum(nil)) {
		return fmt.Errorf("the stream is not what was sent (%d bytes are missing)", in.left)
	}
	if n, err := in.r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return errors.New("the stream does not end where it should")
	}
	return io.EOF
}

// unexpected: a stream that just ends was cut off.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
