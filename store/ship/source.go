package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"celld/store"
	"celld/store/fault"
)

// defaultMaxWAL is how large a WAL may grow for the sake of a copy.
const defaultMaxWAL = 1 << 30

// SourceConfig is what a Source needs. All but File may be left out.
type SourceConfig struct {
	File   *store.File // stays open until after Close
	MaxWAL int64       // bytes of WAL at which the copy breaks; 0 for 1 GiB
	// Pace lets that many bytes through, of pages or frames, at most pieceBytes and
	// one page at a time: rate.Limiter's WaitN. No lock of the file is held meanwhile.
	Pace func(ctx context.Context, bytes int) error
	Dir  string // of a nameless file with 32 bytes for each page; "" for the file's own folder
}

// Source is one copy's end at the file that is copied: a pinned state, whose pages it
// sends, and the frames that follow it. It keeps the WAL and must be closed. Whatever
// breaks the chain of frames ends it: every call says ErrBroken from then on.
//
// Its methods may be called from any goroutine; one sends at a time, others wait.
type Source struct {
	cfg   SourceConfig
	pin   *store.Pin
	start Start
	piece int // bytes of pages or frames in a chunk, but one of them at the least

	turn chan struct{} // holds one: whoever has it may use what follows

	sums   *sums
	tally  *tally
	pinned Digest // of the pinned state, once all its pages were sent
	done   chain  // the frames that are in tally
	broken error
	closed bool
}

// Begin pins the file's latest state with its WAL, and checks the WAL up to there.
func Begin(ctx context.Context, cfg SourceConfig) (*Source, error) {
	if cfg.MaxWAL <= 0 {
		cfg.MaxWAL = defaultMaxWAL
	}
	if cfg.Pace == nil {
		cfg.Pace = func(ctx context.Context, _ int) error { return context.Cause(ctx) }
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Dir(cfg.File.Path())
	}
	pin, mark, err := cfg.File.PinWAL(cfg.MaxWAL)
	if err != nil {
		return nil, ended(err)
	}
	s := &Source{cfg: cfg, pin: pin, piece: pieceBytes, turn: make(chan struct{}, 1)}
	if err := s.begin(ctx, mark); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Source) begin(ctx context.Context, mark store.Mark) error {
	size, pages, err := s.pin.Pages(nil)
	if err != nil {
		return err
	}
	if err := s.walk(ctx, mark.Frames); err != nil {
		return err
	}
	if !s.done.whole || s.done.Pages != pages || s.done.PageSize != uint32(size) {
		return ErrBroken.Because(fmt.Errorf("the pinned state has %d pages of %d bytes, its WAL says %d of %d (whole: %v)",
			pages, size, s.done.Pages, s.done.PageSize, s.done.whole))
	}
	if s.sums, err = openSums(s.cfg.Dir); err != nil {
		return err
	}
	s.tally = newTally(s.done.PageSize)
	s.tally.old, s.tally.set = s.sums.read, s.sums.write
	c := mark.Control
	s.start = Start{UID: c.UID, Tenant: c.Tenant, Epoch: c.Epoch, Position: s.done.Position, Index: c.Applied, Sequence: c.Sequence}
	return nil
}

// walk checks the first n frames of the WAL, which leads done to the pinned state.
func (s *Source) walk(ctx context.Context, n uint32) (err error) {
	wal, err := s.cfg.File.OpenWAL()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wal.Close()) }()
	if s.done.Position, err = readHead(wal); err != nil {
		return ErrBroken.Because(err)
	}
	unit := s.done.frameBytes()
	buf := make([]byte, max(pieceBytes/unit, 1)*unit)
	for s.done.Frame < n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := buf[:min(len(buf)/unit, int(n-s.done.Frame))*unit]
		if _, err := wal.ReadAt(part, frameAt(s.done.Position, s.done.Frame+1)); err != nil {
			return ErrBroken.Because(cutShort(err))
		}
		for ; len(part) > 0; part = part[unit:] {
			if _, _, err := s.done.next(part[:unit]); err != nil {
				return ErrBroken.Because(fmt.Errorf("frame %d: %w", s.done.Frame+1, err))
			}
		}
	}
	return nil
}

// Start says what is copied.
func (s *Source) Start() Start { return s.start }

// SendPages writes a stream of the pinned state's pages from first on, counted from
// 1, which must not leave out any that was never sent; at most one page behind the
// last one, for none.
func (s *Source) SendPages(ctx context.Context, w io.Writer, first uint32) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.yield()
	if s.whole() {
		if first == 0 || first > s.start.Pages+1 {
			return errNoSuchPage
		}
	} else if first == 0 || first > s.tally.pages+1 {
		return errNoSuchPage
	}
	out := newSender(w)
	if err := out.send(kindStart, (&opening{kind: kindPages, start: s.start, first: first}).body()); err != nil {
		return err
	}
	size := int(s.start.PageSize)
	for first <= s.start.Pages {
		n := min(max(s.piece/size, 1), int(s.start.Pages-first+1))
		if err := s.cfg.Pace(ctx, n*size); err != nil {
			return err
		}
		part := out.room(n * size)
		if err := s.pin.ReadPages(ctx.Done(), size, first, part); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return s.fail(err)
		}
		if err := s.count(first, part); err != nil {
			return s.fail(err)
		}
		if err := out.piece(kindPages, first, len(part)); err != nil {
			return err
		}
		first += uint32(n)
	}
	return out.send(kindEnd, Point{Position: s.start.Position, Index: s.start.Index, Sequence: s.start.Sequence, Digest: s.pinned}.append(nil))
}

var (
	errNoSuchPage = fault.New(fault.Invalid, "invalid-parameter", "ask for pages from the first one that was not sent yet, or from one before it")
	errNoPages    = fault.New(fault.Conflict, "copy-has-no-pages", "take all pages before the frames behind them")
	errNoPosition = ErrBroken.Because(errors.New("the position asked for is not one of this copy's"))
)

// whole says whether every page of the pinned state was sent.
func (s *Source) whole() bool { return s.pinned != Digest{} }

// count has the tally know of the pages that it does not know yet.
func (s *Source) count(first uint32, part []byte) error {
	size := int(s.start.PageSize)
	for ; len(part) > 0 && !s.whole(); part, first = part[size:], first+1 {
		if first <= s.tally.pages {
			continue
		}
		if err := s.tally.put(first, part[:size]); err != nil {
			return err
		}
		if first == s.start.Pages {
			s.pinned = s.tally.digest()
		}
	}
	return s.sums.flush()
}

// SendRound commits what is open and writes a stream of all frames behind from, as
// far as that commit. It returns where they lead, which the stream's end says too.
func (s *Source) SendRound(ctx context.Context, w io.Writer, from Position) (end Point, err error) {
	if err := s.take(ctx); err != nil {
		return end, err
	}
	defer s.yield()
	if !s.whole() {
		return end, errNoPages
	}
	mark, err := s.cfg.File.Mark()
	if err != nil {
		return end, err
	}
	if err := s.pin.Read(nil, func(*store.Conn) error { return nil }); err != nil {
		return end, s.fail(err)
	}
	wal, err := s.cfg.File.OpenWAL()
	if err != nil {
		return end, s.fail(err)
	}
	defer func() { err = errors.Join(err, wal.Close()) }()
	if err := s.look(wal, mark.Frames); err != nil {
		return end, s.fail(err)
	}
	if !sameWAL(from, s.start.Position) || from.Frame < s.start.Frame || from.Frame > mark.Frames {
		return end, errNoPosition
	}
	if is, err := holds(wal, from); err != nil {
		return end, s.fail(err)
	} else if !is {
		return end, errNoPosition
	}
	out := newSender(w)
	if err := out.send(kindStart, (&opening{kind: kindFrames, start: s.start, from: from}).body()); err != nil {
		return end, err
	}
	at, err := s.sendFrames(ctx, out, wal, chain{Position: from, whole: true}, mark.Frames)
	if err != nil {
		return end, err
	}
	if !at.whole {
		return end, s.fail(fmt.Errorf("frame %d ends no commit, where one was made", at.Frame))
	}
	if at != s.done {
		return end, s.fail(errors.New("the frames sent again are not those sent before"))
	}
	end = Point{Position: at.Position, Index: mark.Control.Applied, Sequence: mark.Control.Sequence, Digest: s.tally.digest()}
	return end, out.send(kindEnd, end.append(nil))
}

// look says whether the WAL is the one that the copy follows, and goes as far as it
// did.
func (s *Source) look(wal io.ReaderAt, frames uint32) error {
	head, err := readHead(wal)
	if err != nil {
		return err
	}
	if !sameWAL(head, s.start.Position) {
		return errRestarted
	}
	if frames < s.done.Frame {
		return errShort
	}
	at := s.done.Position
	if !s.done.whole {
		return nil // the chain shows
	}
	if is, err := holds(wal, at); err != nil {
		return err
	} else if !is {
		return errRestarted
	}
	return nil
}

func sameWAL(a, b Position) bool {
	return a.Salt == b.Salt && a.Magic == b.Magic && a.PageSize == b.PageSize
}

// sendFrames sends the frames behind at, as far as the n-th, and has the tally know of
// those that it does not know yet.
func (s *Source) sendFrames(ctx context.Context, out *sender, wal io.ReaderAt, at chain, n uint32) (chain, error) {
	unit := at.frameBytes()
	for at.Frame < n {
		k := min(max(s.piece/unit, 1), int(n-at.Frame))
		if err := s.cfg.Pace(ctx, k*unit); err != nil {
			return at, err
		}
		part, first := out.room(k*unit), at.Frame+1
		if _, err := wal.ReadAt(part, frameAt(at.Position, first)); err != nil {
			return at, s.fail(cutShort(err))
		}
		for frame := part; len(frame) > 0; frame = frame[unit:] {
			page, size, err := at.next(frame[:unit])
			if err == nil && at.Frame > s.done.Frame {
				err = s.follow(at, page, size, frame[frameHead:unit])
			}
			if err != nil {
				return at, s.fail(fmt.Errorf("frame %d: %w", at.Frame, err))
			}
		}
		if err := s.sums.flush(); err != nil {
			return at, s.fail(err)
		}
		if err := out.piece(kindFrames, first, len(part)); err != nil {
			return at, err
		}
	}
	return at, nil
}

// follow has the tally know of the frame that leads to at.
func (s *Source) follow(at chain, page, size uint32, b []byte) error {
	err := s.tally.put(page, b)
	if err == nil && size > 0 {
		err = s.tally.resize(size)
	}
	s.done = at
	return err
}

// take waits for the turn.
func (s *Source) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.closed {
		s.yield()
		return os.ErrClosed
	}
	if s.broken != nil {
		s.yield()
		return s.broken
	}
	return nil
}

func (s *Source) yield() { <-s.turn }

// fail ends the copy for good, and lets go of the WAL. What the WAL is like says little
// if the pin had ended before.
func (s *Source) fail(err error) error {
	if pin := s.pin.Read(nil, func(*store.Conn) error { return nil }); errors.Is(pin, store.ErrPinOutgrown) && !errors.Is(err, store.ErrPinOutgrown) {
		err = fmt.Errorf("%w: %w", pin, err)
	}
	s.broken = ErrBroken.Because(errors.Join(err, s.pin.Close()))
	return s.broken
}

// ended is a pin's error at the beginning of a copy.
func ended(err error) error {
	if errors.Is(err, store.ErrPinOutgrown) {
		return ErrBroken.Because(err)
	}
	return err
}

// Close waits for what is being sent and lets go of everything.
func (s *Source) Close() error {
	s.turn <- struct{}{}
	defer s.yield()
	s.closed = true
	return s.release()
}

func (s *Source) release() error {
	err := s.pin.Close()
	if s.sums != nil {
		err = errors.Join(err, s.sums.close())
		s.sums = nil
	}
	return err
}

// cutShort: a WAL that ends too early lacks what was there.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return errShort
	}
	return err
}
