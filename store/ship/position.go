package ship

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"celld/store/tenant"
)

// Position is a place in a WAL, right behind a frame that ends a commit. Two equal
// positions have the same frames before them: the checksum runs over all of them.
type Position struct {
	PageSize uint32
	Magic    uint32    // the WAL's first word; it says in which order checksums read bytes
	Salt     uint64    // of this life of the WAL
	Frame    uint32    // frames up to here
	Sum      [2]uint32 // the checksum over them
	Pages    uint32    // of the database, as of here
}

const positionBytes = 32

// Since is how many bytes of frames lie between from and p.
func (p Position) Since(from Position) int64 {
	return (int64(p.Frame) - int64(from.Frame)) * int64(frameHead+p.PageSize)
}

func (p Position) check() error {
	switch {
	case p.PageSize < 512 || p.PageSize > 64<<10 || p.PageSize&(p.PageSize-1) != 0:
		return fmt.Errorf("a position with pages of %d bytes", p.PageSize)
	case p.Magic != walMagic && p.Magic != walMagic|1:
		return fmt.Errorf("a position in no WAL (%#x)", p.Magic)
	case p.Frame == 0 || p.Pages == 0:
		return fmt.Errorf("a position behind %d frames in a database of %d pages", p.Frame, p.Pages)
	}
	return nil
}

func (p Position) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, p.PageSize)
	b = binary.BigEndian.AppendUint32(b, p.Magic)
	b = binary.BigEndian.AppendUint64(b, p.Salt)
	b = binary.BigEndian.AppendUint32(b, p.Frame)
	b = binary.BigEndian.AppendUint32(b, p.Sum[0])
	b = binary.BigEndian.AppendUint32(b, p.Sum[1])
	return binary.BigEndian.AppendUint32(b, p.Pages)
}

// parsePosition reads the first positionBytes of b, which is as long at least.
func parsePosition(b []byte) Position {
	u32 := binary.BigEndian.Uint32
	return Position{
		PageSize: u32(b), Magic: u32(b[4:]), Salt: binary.BigEndian.Uint64(b[8:]), Frame: u32(b[16:]),
		Sum: [2]uint32{u32(b[20:]), u32(b[24:])}, Pages: u32(b[28:]),
	}
}

// Text writes a position for a request: its bytes and a CRC-32C of them.
func (p Position) Text() string {
	b := p.append(make([]byte, 0, positionBytes+4))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli())))
}

// ParsePosition reads what Text wrote, and nothing else.
func ParsePosition(text string) (p Position, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != positionBytes+4 || crc32.Checksum(b[:positionBytes], castagnoli()) != binary.BigEndian.Uint32(b[positionBytes:]) ||
		base64.RawURLEncoding.EncodeToString(b) != text { // line breaks are ignored by the decoder
		return p, errors.New("not a position in a WAL")
	}
	p = parsePosition(b)
	return p, p.check()
}

// Point is a position and what the file holds there.
type Point struct {
	Position
	Index    uint64 // applied, by the control row; 0 in the middle of a round, where nobody says it
	Sequence uint64 // by the control row; 0 in the middle of a round
	Digest   Digest // of all pages
}

const pointBytes = positionBytes + 16 + len(Digest{})

func (p Point) append(b []byte) []byte {
	b = p.Position.append(b)
	b = binary.BigEndian.AppendUint64(b, p.Index)
	b = binary.BigEndian.AppendUint64(b, p.Sequence)
	return append(b, p.Digest[:]...)
}

func parsePoint(b []byte) Point {
	return Point{
		Position: parsePosition(b), Index: binary.BigEndian.Uint64(b[positionBytes:]), Sequence: binary.BigEndian.Uint64(b[positionBytes+8:]),
		Digest: Digest(b[positionBytes+16 : pointBytes]),
	}
}

// Start says of what a copy is, and in which state its pages are. Copies with equal
// starts are of the same bytes.
type Start struct {
	UID      tenant.UID
	Tenant   tenant.ID
	Epoch    tenant.Epoch
	Position        // where the pinned state ends
	Index    uint64 // applied there
	Sequence uint64 // there
}

const maxStart = positionBytes + 24 + 2*256

func (s Start) append(b []byte) []byte {
	b = s.Position.append(b)
	b = binary.BigEndian.AppendUint64(b, s.Index)
	b = binary.BigEndian.AppendUint64(b, s.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Epoch))
	b = append(append(b, byte(len(s.UID))), s.UID...)
	return append(append(b, byte(len(s.Tenant))), s.Tenant...)
}

// parseStart reads a start from the beginning of b and returns what is behind it.
func parseStart(b []byte) (s Start, rest []byte, err error) {
	const fixed = positionBytes + 24
	if len(b) < fixed {
		return s, nil, errors.New("a start that is cut off")
	}
	s.Position = parsePosition(b)
	s.Index = binary.BigEndian.Uint64(b[positionBytes:])
	s.Sequence = binary.BigEndian.Uint64(b[positionBytes+8:])
	s.Epoch = tenant.Epoch(binary.BigEndian.Uint64(b[positionBytes+16:]))
	b = b[fixed:]
	var names [2]string
	for i := range names {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return s, nil, errors.New("a start that is cut off")
		}
		names[i], b = string(b[1:1+b[0]]), b[1+b[0]:]
	}
	s.UID, s.Tenant = tenant.UID(names[0]), tenant.ID(names[1])
	return s, b, s.check()
}

// size is how many bytes the pinned state has.
func (s Start) size() int64 { return int64(s.Pages) * int64(s.PageSize) }
