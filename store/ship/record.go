package ship

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// phase is what a stage is at.
type phase uint8

const (
	phaseEmpty    phase = iota // nothing in it counts
	phasePages                 // it has the first pages of the pinned state
	phaseFrames                // it has the state at the end of the pages or of a round
	phaseMidway                // it has the state of a commit in the middle of a round
	phaseApplying              // it is on its way from one position to the next, by the tail
	phases
)

// record is what a stage remembers durably.
type record struct {
	phase phase
	start Start
	pages uint32 // that count; of no use but in phasePages
	at    Point  // where the stage is; its digest is of the pages that count
	to    Point  // where the tail leads, in phaseApplying
}

// A record is written to two places in turn, each with its number and a checksum, so
// that the one before it is still there if the writing is cut off.
const (
	recordMagic = "celldst1"
	slotBytes   = 1024
	slotEvery   = 4096 // from one slot's beginning to the next
)

func (r *record) encode(number uint64) []byte {
	b := make([]byte, 0, slotBytes)
	b = append(b, recordMagic...)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, byte(r.phase))
	b = binary.BigEndian.AppendUint32(b, r.pages)
	b = r.at.append(b)
	b = r.to.append(b)
	b = r.start.append(b)
	b = b[:slotBytes-4]
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

var errNoRecord = errors.New("no record")

func decodeRecord(b []byte) (r record, number uint64, err error) {
	const fixed = len(recordMagic) + 8 + 1 + 4 + 2*pointBytes
	if len(b) != slotBytes || string(b[:len(recordMagic)]) != recordMagic ||
		crc32.Checksum(b[:slotBytes-4], castagnoli()) != binary.BigEndian.Uint32(b[slotBytes-4:]) {
		return r, 0, errNoRecord
	}
	b = b[len(recordMagic):]
	number = binary.BigEndian.Uint64(b)
	r.phase = phase(b[8])
	r.pages = binary.BigEndian.Uint32(b[9:])
	r.at = parsePoint(b[13:])
	r.to = parsePoint(b[13+pointBytes:])
	if r.phase >= phases {
		return r, 0, errNoRecord
	}
	if r.phase != phaseEmpty {
		r.start, _, err = parseStart(b[fixed-len(recordMagic):])
	}
	return r, number, err
}

// journal is the file of records.
type journal struct {
	f      file
	number uint64 // of the last record
}

// load reads the latest record; an empty one if there is none.
func (j *journal) load() (latest record, err error) {
	for i := range int64(2) {
		b := make([]byte, slotBytes)
		if n, err := j.f.ReadAt(b, i*slotEvery); err != nil && !errors.Is(err, io.EOF) {
			return latest, err
		} else if n < len(b) {
			continue
		}
		r, number, err := decodeRecord(b)
		if err == nil && number > j.number {
			latest, j.number = r, number
		}
	}
	return latest, nil
}

// store makes r the latest record, durably.
func (j *journal) store(r *record) error {
	if _, err := j.f.WriteAt(r.encode(j.number+1), int64((j.number+1)%2)*slotEvery); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.number++
	return nil
}
