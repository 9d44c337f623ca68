package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// apply brings the database along the tail to to, as one step for whoever opens the
// stage after a crash: the tail is durable before the first page changes, and counts
// until the last one is durable.
func (s *Stage) apply(to Point) error {
	if err := s.tail.Sync(); err != nil {
		return err
	}
	s.rec.phase, s.rec.to = phaseApplying, to
	if err := s.log.store(&s.rec); err != nil {
		return err
	}
	err := s.alongTail(func(page, size uint32, b []byte) error {
		if err := s.tally.put(page, b); err != nil { // reads what was there
			return err
		}
		if err := s.write(page, 0, b); err != nil || size == 0 {
			return err
		}
		if err := s.tally.resize(size); err != nil { // reads what goes
			return err
		}
		return s.resize(size)
	})
	if err != nil {
		return err
	}
	return s.arrive()
}

// write changes a page of the database, which has size pages then unless size is 0.
// Pages that it grows by and that nobody has written are of zeros.
func (s *Stage) write(page, size uint32, b []byte) error {
	_, err := s.db.WriteAt(b, s.pageAt(page))
	if err == nil && size > 0 {
		err = s.resize(size)
	}
	return err
}

func (s *Stage) resize(pages uint32) error { return s.db.Truncate(s.pageAt(pages + 1)) }

// alongTail calls fn for each frame of the tail, from where the stage is to where the
// record says that it leads.
func (s *Stage) alongTail(fn func(page, size uint32, b []byte) error) error {
	at := chain{Position: s.rec.at.Position, whole: true}
	unit := at.frameBytes()
	buf := make([]byte, min(max(pieceBytes/unit, 1), int(s.rec.to.Frame-at.Frame))*unit)
	for at.Frame < s.rec.to.Frame {
		part := buf[:min(len(buf)/unit, int(s.rec.to.Frame-at.Frame))*unit]
		if _, err := s.tail.ReadAt(part, at.Since(s.rec.at.Position)); errors.Is(err, io.EOF) {
			return errUnlike
		} else if err != nil {
			return err
		}
		for ; len(part) > 0; part = part[unit:] {
			page, size, err := at.next(part[:unit])
			if err != nil {
				return fmt.Errorf("%w: %w", errUnlike, err)
			}
			if err := fn(page, size, part[frameHead:unit]); err != nil {
				return err
			}
		}
	}
	if at.Position != s.rec.to.Position || !at.whole {
		return errUnlike
	}
	return nil
}

// arrive makes durable that the tail is applied.
func (s *Stage) arrive() error {
	to, phase := s.rec.to, phaseFrames
	if to.Digest == (Digest{}) { // in the middle of a round nobody has said it
		to.Digest, phase = s.tally.digest(), phaseMidway
	}
	if err := s.agree(to); err != nil {
		return err
	}
	if err := s.db.Sync(); err != nil {
		return err
	}
	s.rec.phase, s.rec.at, s.rec.to = phase, to, Point{}
	if err := s.log.store(&s.rec); err != nil {
		return err
	}
	s.tell()
	return s.tail.Truncate(0)
}

// agree compares the digest that was kept with that of p.
func (s *Stage) agree(p Point) error {
	if d := s.tally.digest(); d != p.Digest {
		return fmt.Errorf("%w: the staged pages have the digest %s, those of the source %s", errUnlike, d, p.Digest)
	}
	return nil
}

// applyAgain is apply after a crash in it. Any page that the tail has may be old, new or
// torn, so all of it is checked before, and applied whole; the digest is that of what
// can be read then.
func (s *Stage) applyAgain() error {
	if err := s.alongTail(func(uint32, uint32, []byte) error { return nil }); err != nil {
		return err
	}
	had := s.pageAt(s.rec.at.Pages + 1)
	switch size, err := s.db.Size(); {
	case err != nil:
		return err
	case size > had: // what it has grown by comes again
		if err := s.db.Truncate(had); err != nil {
			return err
		}
	}
	if err := s.alongTail(s.write); err != nil {
		return err
	}
	d, err := s.digest(context.Background(), s.rec.to.Pages)
	if err != nil {
		return err
	}
	s.tally.resume(s.rec.to.Pages, d)
	return s.arrive()
}
