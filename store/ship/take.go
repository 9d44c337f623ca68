package ship

import (
	"context"
	"errors"
	"fmt"
	"io"

	"celld/store/fault"
	"celld/store/room"
)

// errOther refuses what is of another copy, or of another place in it.
var errOther = fault.New(fault.Conflict, "copy-elsewhere", "the staged copy is at another place; ask it where, or start over")

// TakePages reads a stream of Source.SendPages, which goes on where the stage is. Of a
// stream that breaks off, the pages that came are kept.
func (s *Stage) TakePages(ctx context.Context, r io.Reader) error {
	in, o, err := newReceiver(r, kindPages)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.expectPages(&o); err != nil {
		return err
	}
	end, err := s.takePages(ctx, in, o.first)
	if err != nil && s.broken == nil {
		err = errors.Join(err, s.own(s.savePages()))
	}
	if err != nil {
		return err
	}
	if d := s.tally.digest(); d != end.Digest || end.Position != s.rec.start.Position {
		return s.spoil(fmt.Errorf("the pages have the digest %s, those that were sent %s", d, end.Digest))
	}
	if err := s.db.Sync(); err != nil {
		return s.own(err)
	}
	s.rec.phase, s.rec.at, s.rec.pages = phaseFrames, end, 0
	defer s.tell()
	return s.own(s.log.store(&s.rec))
}

// expectPages says whether the pages to come are the next ones, and makes an empty
// stage one of theirs.
func (s *Stage) expectPages(o *opening) error {
	if s.rec.phase == phaseEmpty && o.first == 1 {
		if err := s.check(o.start.Position); err != nil {
			return err
		}
		s.rec = record{phase: phasePages, start: o.start, at: Point{Position: o.start.Position}}
		s.begin()
		defer s.tell()
		return s.own(s.log.store(&s.rec))
	}
	if s.rec.phase != phasePages || o.start != s.rec.start || o.first == 0 || o.first > s.tally.pages+1 {
		return errOther
	}
	return nil
}

func (s *Stage) takePages(ctx context.Context, in *receiver, next uint32) (end Point, err error) {
	unsaved := 0
	for {
		kind, body, err := s.receive(ctx, in)
		if err != nil {
			return end, err
		}
		switch kind {
		case kindEnd:
			if s.tally.pages != s.rec.start.Pages {
				return end, ErrStream.Because(fmt.Errorf("it ends after %d pages of %d", s.tally.pages, s.rec.start.Pages))
			}
			return parseEnd(body)
		case kindPages:
		default:
			return end, ErrStream.Because(fmt.Errorf("a chunk of kind %q among pages", kind))
		}
		first, part, err := piece(body, len(s.page))
		if err != nil {
			return end, err
		}
		n := uint32(len(part) / len(s.page))
		if first != next || n > s.rec.start.Pages-first+1 {
			return end, ErrStream.Because(fmt.Errorf("%d pages from %d on where %d of %d follows", n, first, next, s.rec.start.Pages))
		}
		next += n
		if err := s.putPages(first, part); err != nil {
			return end, s.own(err)
		}
		if unsaved += len(part); unsaved >= s.saveEvery {
			unsaved = 0
			if err := s.savePages(); err != nil {
				return end, s.own(err)
			}
		}
		s.tell()
	}
}

// receive is the next chunk, if the stage still wants one.
func (s *Stage) receive(ctx context.Context, in *receiver) (kind byte, body []byte, err error) {
	if s.cfg.Room.Level() == room.None {
		return 0, nil, s.cfg.Room.Err()
	}
	if kind, body, err = in.next(); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return kind, body, err
}

// putPages adds the pages of a piece that are new.
func (s *Stage) putPages(first uint32, part []byte) error {
	if skip := s.tally.pages + 1 - first; skip > 0 {
		had := min(int(skip)*len(s.page), len(part))
		first, part = first+skip, part[had:]
	}
	if _, err := s.db.WriteAt(part, s.pageAt(first)); err != nil {
		return err
	}
	for ; len(part) > 0; part, first = part[len(s.page):], first+1 {
		if err := s.tally.put(first, part[:len(s.page)]); err != nil {
			return err
		}
	}
	return nil
}

// savePages makes durable how many pages there are.
func (s *Stage) savePages() error {
	if err := s.db.Sync(); err != nil {
		return err
	}
	s.rec.pages, s.rec.at.Digest = s.tally.pages, s.tally.digest()
	return s.log.store(&s.rec)
}

// TakeRound reads a stream of Source.SendRound that follows what the stage has, and
// leads it to the round's end, which it returns. The digest of its pages is then that
// of the source. Of a stream that breaks off, commits that came may be kept: Progress
// tells.
func (s *Stage) TakeRound(ctx context.Context, r io.Reader) (end Point, err error) {
	in, o, err := newReceiver(r, kindFrames)
	if err != nil {
		return end, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.wholeNow(); err != nil {
		return end, err
	}
	if o.start != s.rec.start || o.from != s.rec.at.Position {
		return end, errOther
	}
	if err := s.tail.Truncate(0); err != nil {
		return end, s.own(err)
	}
	at := chain{Position: o.from, whole: true}
	for {
		kind, body, err := s.receive(ctx, in)
		if err != nil {
			return end, err
		}
		switch kind {
		case kindEnd:
			return s.endRound(&at, body)
		case kindFrames:
			if err := s.takeFrames(&at, body); err != nil {
				return end, err
			}
		default:
			return end, ErrStream.Because(fmt.Errorf("a chunk of kind %q among frames", kind))
		}
	}
}

// takeFrames adds the frames of a piece to the tail, and applies it when it has grown
// enough.
func (s *Stage) takeFrames(at *chain, body []byte) error {
	unit := at.frameBytes()
	first, part, err := piece(body, unit)
	if err != nil {
		return err
	}
	if first != at.Frame+1 {
		return ErrStream.Because(fmt.Errorf("frame %d where %d follows", first, at.Frame+1))
	}
	kept := 0 // bytes of part that are in the tail
	for n := unit; n <= len(part); n += unit {
		page, _, err := at.next(part[n-unit : n])
		if err == nil {
			err = s.check(Position{Pages: max(page, at.Pages), PageSize: at.PageSize})
		}
		if err != nil {
			return s.spoil(fmt.Errorf("frame %d: %w", first+uint32(n/unit)-1, err))
		}
		if at.whole && at.Since(s.rec.at.Position) >= s.applyEvery {
			if err := s.lengthen(at, part[kept:n]); err != nil {
				return s.own(err)
			}
			kept = n
			if err := s.apply(Point{Position: at.Position}); err != nil {
				return s.own(err)
			}
		}
	}
	return s.own(s.lengthen(at, part[kept:]))
}

// lengthen adds frames to the tail, the last of which is at's.
func (s *Stage) lengthen(at *chain, frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	_, err := s.tail.WriteAt(frames, at.Since(s.rec.at.Position)-int64(len(frames)))
	return err
}

// endRound applies what is left, if that leads to the source's digest.
func (s *Stage) endRound(at *chain, body []byte) (end Point, err error) {
	if end, err = parseEnd(body); err != nil {
		return end, err
	}
	if end.Position != at.Position || !at.whole {
		return end, ErrStream.Because(fmt.Errorf("it ends behind frame %d (of a commit: %v) and says %d", at.Frame, at.whole, end.Frame))
	}
	if at.Position != s.rec.at.Position {
		err = s.apply(end)
	} else if err = s.agree(end); err == nil && (s.rec.at != end || s.rec.phase != phaseFrames) {
		s.rec.phase, s.rec.at = phaseFrames, end
		err = s.log.store(&s.rec)
	}
	if errors.Is(err, errUnlike) {
		return end, s.spoil(err)
	}
	s.tell()
	return end, s.own(err)
}
