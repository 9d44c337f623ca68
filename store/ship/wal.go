package ship

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The WAL as SQLite's file format describes it.
const (
	walMagic  = 0x377f0682 // plus 1: checksums read big-endian words
	walFormat = 3007000
	walHead   = 32
	frameHead = 24
)

var (
	errRestarted = errors.New("the WAL has begun anew")
	errChain     = errors.New("a frame of the WAL does not match its checksum")
	errShort     = errors.New("the WAL is shorter than it was")
)

// checksum continues the WAL's running checksum over b, whole pairs of words.
func checksum(magic uint32, s [2]uint32, b []byte) [2]uint32 {
	s0, s1 := s[0], s[1]
	if magic&1 != 0 {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.BigEndian.Uint32(b) + s1
			s1 += binary.BigEndian.Uint32(b[4:]) + s0
		}
	} else {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	}
	return [2]uint32{s0, s1}
}

// readHead reads the WAL's head as the position before its first frame, with the
// database's size unknown.
func readHead(wal io.ReaderAt) (p Position, err error) {
	var head [walHead]byte
	if _, err := wal.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return p, errShort
	} else if err != nil {
		return p, err
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	p = Position{Magic: u32(0), PageSize: u32(8), Salt: binary.BigEndian.Uint64(head[16:])}
	if p.Magic&^1 != walMagic || u32(4) != walFormat {
		return p, fmt.Errorf("not a WAL of a format that is known (%#x, %d)", p.Magic, u32(4))
	}
	p.Sum = checksum(p.Magic, p.Sum, head[:24])
	if p.Sum != [2]uint32{u32(24), u32(28)} {
		return p, errors.New("the head of the WAL does not match its checksum")
	}
	return p, nil
}

// chain walks over frames, one after the other. A copy of it is a place to go back
// to.
type chain struct {
	Position      // behind the last frame; Pages as of the last commit
	whole    bool // the last frame ended a commit
}

func (c *chain) frameBytes() int { return frameHead + int(c.PageSize) }

// next takes the frame behind the last one, if that is what frame is. size is the
// database's in pages if the frame ends a commit, else 0.
func (c *chain) next(frame []byte) (page, size uint32, err error) {
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(frame[at:]) }
	if binary.BigEndian.Uint64(frame[8:]) != c.Salt {
		return 0, 0, errRestarted
	}
	sum := checksum(c.Magic, c.Sum, frame[:8])
	sum = checksum(c.Magic, sum, frame[frameHead:])
	if sum != [2]uint32{u32(16), u32(20)} || u32(0) == 0 {
		return 0, 0, errChain
	}
	page, size = u32(0), u32(4)
	c.Sum = sum
	c.Frame++
	if c.whole = size != 0; c.whole {
		c.Pages = size
	}
	return page, size, nil
}

// holds says whether the WAL, whose head has been read, has p: the frame that ends
// there has its salt, checksum and size.
func holds(wal io.ReaderAt, p Position) (bool, error) {
	var head [frameHead]byte
	if _, err := wal.ReadAt(head[:], frameAt(p, p.Frame)); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	return binary.BigEndian.Uint64(head[8:]) == p.Salt && u32(16) == p.Sum[0] && u32(20) == p.Sum[1] && u32(4) == p.Pages, nil
}

// frameAt is where the n-th frame, counted from 1, begins.
func frameAt(p Position, n uint32) int64 {
	return walHead + int64(n-1)*int64(frameHead+p.PageSize)
}
