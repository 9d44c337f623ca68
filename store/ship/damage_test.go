package ship

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"celld/store"
)

// bothStreams are a copy's pages and one round, with the source that sent them.
func bothStreams(t *testing.T) (w *world, s *Source, pages, frames []byte) {
	t.Helper()
	w = newWorld(t)
	for range 3 {
		w.insert(t, 5000)
	}
	s = begin(t, w)
	t.Cleanup(func() { must(t, s.Close()) })
	s.piece = 20000
	var b bytes.Buffer
	must(t, s.SendPages(t.Context(), &b, 1))
	pages = bytes.Clone(b.Bytes())
	for range 3 {
		w.insert(t, 6000)
	}
	b.Reset()
	must2(t)(s.SendRound(t.Context(), &b, s.Start().Position))
	return w, s, pages, b.Bytes()
}

// chunks are where the chunks of a stream begin.
func chunks(stream []byte) (at []int) {
	for n := 0; n < len(stream); n += chunkHead + int(binary.BigEndian.Uint32(stream[n+1:])) {
		at = append(at, n)
	}
	return at
}

// telling are the places of a stream that are worth flipping: all of its heads, of what
// is small, and some of the rest.
func telling(stream []byte) (at []int) {
	begins := append(chunks(stream), len(stream))
	for i, from := range begins[:len(begins)-1] {
		for n := from; n < begins[i+1]; n++ {
			if n-from < chunkHead+40 || begins[i+1]-from < 400 || n%151 == 0 {
				at = append(at, n)
			}
		}
	}
	return at
}

func openMem(t *testing.T) *Stage {
	t.Helper()
	s, err := openStage(stageConfig(t.TempDir()), newMemDisk())
	must(t, err)
	return s
}

func TestEveryFlippedByteOfAStreamIsRefused(t *testing.T) {
	_, _, pages, frames := bothStreams(t)
	ctx, to := t.Context(), openMem(t)
	for _, n := range telling(pages) {
		bad := bytes.Clone(pages)
		bad[n] ^= 1 << (n % 8)
		must(t, to.Reset())
		if err := to.TakePages(ctx, bytes.NewReader(bad)); !errors.Is(err, ErrStream) {
			t.Fatalf("pages with byte %d of %d flipped: %v", n, len(bad), err)
		}
		if to.Progress().Whole {
			t.Fatalf("pages with byte %d flipped are whole", n)
		}
	}
	must(t, to.Reset())
	must(t, to.TakePages(ctx, bytes.NewReader(pages)))
	at := to.Progress()
	for _, n := range telling(frames) {
		bad := bytes.Clone(frames)
		bad[n] ^= 1 << (n % 8)
		if _, err := to.TakeRound(ctx, bytes.NewReader(bad)); !errors.Is(err, ErrStream) {
			t.Fatalf("a round with byte %d of %d flipped: %v", n, len(bad), err)
		}
		if to.Progress() != at {
			t.Fatalf("a round with byte %d flipped led to %+v", n, to.Progress())
		}
	}
	for _, n := range []int{0, 1, len(frames) / 2, len(frames) - 1} {
		if _, err := to.TakeRound(ctx, bytes.NewReader(frames[:n])); !errors.Is(err, ErrStream) {
			t.Errorf("%d bytes of a round: %v", n, err)
		}
	}
	if _, err := to.TakeRound(ctx, io.MultiReader(bytes.NewReader(frames), bytes.NewReader([]byte{0}))); !errors.Is(err, ErrStream) {
		t.Errorf("one byte more: %v", err)
	}
	must2(t)(to.TakeRound(ctx, bytes.NewReader(frames)))
}

// What has its checksum put right is found out by the chain of frames and the digest.
func TestWhatAChunkHidesIsFoundOut(t *testing.T) {
	_, _, pages, frames := bothStreams(t)
	ctx, to := t.Context(), openMem(t)
	hide := func(stream []byte, chunk, n int) []byte {
		bad := bytes.Clone(stream)
		from := chunks(stream)[chunk]
		body := bad[from+chunkHead:][:binary.BigEndian.Uint32(bad[from+1:])]
		body[n] ^= 1 << (n % 8)
		sum := crc32.Update(crc32.Update(0, castagnoli(), bad[from:from+5]), castagnoli(), body)
		binary.BigEndian.PutUint32(bad[from+5:], sum)
		return bad
	}
	last := len(chunks(pages)) - 1
	for _, n := range []int{4, 200, 5000, 9000} {
		must(t, to.Reset())
		if err := to.TakePages(ctx, bytes.NewReader(hide(pages, 1, n))); !errors.Is(err, ErrBroken) {
			t.Errorf("byte %d of the pages: %v", n, err)
		}
	}
	for n := range pointBytes {
		must(t, to.Reset())
		err := to.TakePages(ctx, bytes.NewReader(hide(pages, last, n)))
		counters := n >= positionBytes && n < positionBytes+16
		if !counters && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrStream) {
			t.Errorf("byte %d of the end of pages: %v", n, err)
		}
	}
	last = len(chunks(frames)) - 1
	refuse := func(what string, n int, bad []byte) {
		t.Helper()
		must(t, to.Reset())
		must(t, to.TakePages(ctx, bytes.NewReader(pages)))
		if _, err := to.TakeRound(ctx, bytes.NewReader(bad)); !errors.Is(err, ErrBroken) && !errors.Is(err, ErrStream) && !errors.Is(err, errOther) {
			t.Errorf("byte %d of %s: %v", n, what, err)
		}
	}
	for n := range 4 + frameHead + 8 {
		refuse("the frames", n, hide(frames, 1, n))
	}
	for n := range pointBytes {
		if n < positionBytes || n >= positionBytes+16 { // what is between is the file's own to tell
			refuse("the end of a round", n, hide(frames, last, n))
		}
	}
	opening := int(binary.BigEndian.Uint32(frames[1:]))
	for n := range opening {
		refuse("the opening of a round", n, hide(frames, 0, n))
	}
}

func TestEveryFlippedByteOfTheWALIsSeen(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 6000)
	s := begin(t, w)
	defer s.Close()
	wal := read(t, w.f.Path()+"-wal")
	for n := range walHead {
		bad := bytes.Clone(wal[:walHead])
		bad[n] ^= 1 << (n % 8)
		if p, err := readHead(bytes.NewReader(bad)); err == nil && sameWAL(p, s.start.Position) && p.Sum == checksum(p.Magic, [2]uint32{}, wal[:24]) {
			t.Errorf("byte %d of the head: %+v", n, p)
		}
	}
	first, err := readHead(bytes.NewReader(wal))
	must(t, err)
	frame := wal[walHead:][:frameHead+first.PageSize]
	for n := range frame {
		bad := bytes.Clone(frame)
		bad[n] ^= 1 << (n % 8)
		at := chain{Position: first}
		if _, _, err := at.next(bad); err == nil || at != (chain{Position: first}) {
			t.Fatalf("byte %d of a frame: %v, at %+v", n, err, at)
		}
	}
	at := chain{Position: first}
	_, _, err = at.next(frame)
	must(t, err)
	// Big-endian checksums are of the same WAL on another machine.
	big := first
	big.Magic |= 1
	b := bytes.Clone(frame)
	sum := checksum(big.Magic, checksum(big.Magic, big.Sum, b[:8]), b[frameHead:])
	binary.BigEndian.PutUint32(b[16:], sum[0])
	binary.BigEndian.PutUint32(b[20:], sum[1])
	at = chain{Position: big}
	if _, _, err := at.next(b); err != nil || sum == [2]uint32{binary.BigEndian.Uint32(frame[16:]), binary.BigEndian.Uint32(frame[20:])} {
		t.Errorf("a big-endian checksum: %v", err)
	}
}

func TestPositionsAreReadExactly(t *testing.T) {
	w, s, _, _ := bothStreams(t)
	p := s.Start().Position
	text := p.Text()
	if got, err := ParsePosition(text); err != nil || got != p {
		t.Fatalf("%+v: %v", got, err)
	}
	for n := range len(text) {
		for _, c := range []byte{'A', 'z', '-', '\n', '=', 0} {
			bad := []byte(text)
			if bad[n] == c {
				continue
			}
			bad[n] = c
			if got, err := ParsePosition(string(bad)); err == nil {
				t.Errorf("%q was read as %+v", bad, got)
			}
		}
	}
	for _, bad := range []string{"", text[1:], text + "A", text[:8] + "\n" + text[8:]} {
		if _, err := ParsePosition(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	raw := p.append(nil)
	for n := range raw {
		bad := bytes.Clone(raw)
		bad[n] ^= 1 << (n % 8)
		if _, err := s.SendRound(t.Context(), io.Discard, parsePosition(bad)); !errors.Is(err, ErrBroken) {
			t.Errorf("a round from a position with byte %d flipped: %v", n, err)
		}
	}
	must2(t)(s.SendRound(t.Context(), io.Discard, p))
	w.insert(t, 10)
	must2(t)(s.SendRound(t.Context(), io.Discard, p))
}

// Whichever byte of what a stage has on disk is another one: it begins anew, or leads
// to the source's bytes, or says that it cannot go on. It never ends as anything else.
func TestDamagedStageNeverEndsAsAnotherFile(t *testing.T) {
	w, s, _, _ := bothStreams(t)
	s.piece = 5000
	for range 5 {
		w.exec(t, "UPDATE note SET extra = zeroblob(length(extra) + 900)")
	}
	from := &streams{s: s, pages: make(map[uint32][]byte), round: make(map[Position][]byte)}
	cfg := stageConfig(t.TempDir())
	paths, want := &Stage{cfg: cfg}, pagesOf(t, w.f)
	outcome := make(map[string]int)
	for failAt := 30; failAt < 400; failAt += 11 {
		for seed := range uint64(9) {
			random := rand.New(rand.NewPCG(uint64(failAt), seed))
			d := newMemDisk()
			d.failAt, d.dies = failAt, true
			_ = build(d, cfg, from, true, func(*Stage) error { return nil })
			d.restart()
			path := []string{paths.path(), paths.tailPath(), paths.recordPath()}[seed%3]
			f := d.files[path]
			if f == nil || len(f.now) == 0 || d.files[paths.recordPath()] == nil {
				continue
			}
			f.now[random.IntN(len(f.now))] ^= 1 << random.IntN(8)
			began := "went on"
			err := build(d, cfg, from, false, func(to *Stage) error {
				if to.Progress() == (Progress{}) {
					began = "began anew"
				}
				return nil
			})
			switch {
			case errors.Is(err, ErrBroken):
				began = "broke"
			case err != nil:
				t.Fatalf("%d, %d: %v", failAt, seed, err)
			case !bytes.Equal(d.files[paths.path()].now, want):
				// A page that no frame replaces is hashed when it comes and not again.
				if seed%3 != 0 {
					t.Fatalf("%d, %d: the copy is not the source", failAt, seed)
				}
				began = "is for Verify to find"
			}
			outcome[began]++
		}
	}
	t.Log(outcome)
	for _, what := range []string{"went on", "began anew", "broke"} {
		if outcome[what] == 0 {
			t.Errorf("%v: nothing %s", outcome, what)
		}
	}
}

func TestVerifyReadsWhatIsThere(t *testing.T) {
	_, _, pages, frames := bothStreams(t)
	d := newMemDisk()
	to, err := openStage(stageConfig(t.TempDir()), d)
	must(t, err)
	must(t, to.TakePages(t.Context(), bytes.NewReader(pages)))
	must2(t)(to.TakeRound(t.Context(), bytes.NewReader(frames)))
	must(t, to.Verify(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := to.Verify(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d.files[to.path()].now[6000] ^= 1
	if err := to.Verify(t.Context()); !errors.Is(err, ErrBroken) {
		t.Errorf("a byte is another one: %v", err)
	}
	if err := to.Finish(); !errors.Is(err, ErrBroken) {
		t.Errorf("a broken copy was finished: %v", err)
	}
	must(t, to.Reset())
	must(t, to.TakePages(t.Context(), bytes.NewReader(pages)))
	d.files[to.path()].now[18] = 1
	if err := to.Finish(); !errors.Is(err, ErrBroken) {
		t.Errorf("finished a database that is not in WAL mode: %v", err)
	}
}

// loose replaces the source's pin by one that was made when all of the WAL was moved.
func loose(t *testing.T, w *world, s *Source) {
	t.Helper()
	must(t, s.pin.Close())
	must(t, w.f.Checkpoint())
	pin, err := w.f.Pin()
	must(t, err)
	s.pin = pin
}

func TestWALThatBeginsAnewIsNoticedAtOnce(t *testing.T) {
	for name, after := range map[string]func(*world){
		"a shorter one": func(w *world) { w.insert(t, 1) },
		"a longer one": func(w *world) {
			for range 20 {
				w.insert(t, 9000)
			}
		},
		"an empty one": func(w *world) { w.checkpoint(t, "TRUNCATE") },
	} {
		w, s, _, _ := bothStreams(t)
		loose(t, w, s)
		if name == "an empty one" {
			must(t, s.pin.Close())
			w.checkpoint(t, "TRUNCATE")
			pin, err := w.f.Pin()
			must(t, err)
			s.pin = pin
		} else {
			after(w)
		}
		_, err := s.SendRound(t.Context(), io.Discard, s.Start().Position)
		if !errors.Is(err, ErrBroken) || !errors.Is(err, errRestarted) && !errors.Is(err, errShort) {
			t.Errorf("%s: %v", name, err)
		}
		again := s.SendPages(t.Context(), io.Discard, 1)
		if !errors.Is(again, ErrBroken) {
			t.Errorf("%s: a copy that broke goes on: %v", name, again)
		}
	}
}

func TestDamagedWALEndsTheCopy(t *testing.T) {
	for _, far := range []int64{0, 17, walHead + 10, -1, -4096 - 20, -4096 - 5} {
		w, s, _, _ := bothStreams(t)
		w.insert(t, 100)
		must(t, w.f.Commit())
		wal, err := os.OpenFile(w.f.Path()+"-wal", os.O_RDWR, 0)
		must(t, err)
		at := far
		if at < 0 {
			info, err := wal.Stat()
			must(t, err)
			at += info.Size()
		}
		var one [1]byte
		_, err = wal.ReadAt(one[:], at)
		must(t, err)
		good := one
		one[0] ^= 4
		_, err = wal.WriteAt(one[:], at)
		must(t, err)
		_, err = s.SendRound(t.Context(), io.Discard, s.done.Position)
		_, begun := Begin(t.Context(), SourceConfig{File: w.f})
		if broken := errors.Is(err, ErrBroken); broken != (far != walHead+10) { // that frame was sent with the pages
			t.Errorf("byte %d: %v", far, err)
		}
		if !errors.Is(begun, ErrBroken) {
			t.Errorf("byte %d: began on a damaged WAL: %v", far, begun)
		}
		_, err = wal.WriteAt(good[:], at)
		must(t, errors.Join(err, wal.Close()))
	}
}

func TestCopyBreaksWhenTheWALIsTooLarge(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 100)
	s, err := Begin(t.Context(), SourceConfig{File: w.f, MaxWAL: 200 << 10})
	must(t, err)
	defer s.Close()
	must(t, pages(s, w.stage))
	rounds := 0
	for ; err == nil && rounds < 100; rounds++ {
		w.insert(t, 9000)
		_, err = round(s, w.stage)
	}
	if !errors.Is(err, ErrBroken) || !errors.Is(err, store.ErrPinOutgrown) || rounds < 5 {
		t.Errorf("after %d rounds: %v", rounds, err)
	}
	if _, err := Begin(t.Context(), SourceConfig{File: w.f, MaxWAL: 200 << 10}); !errors.Is(err, ErrBroken) {
		t.Errorf("began in a WAL that is too large: %v", err)
	}
	w.restart(t)
	next, err := Begin(t.Context(), SourceConfig{File: w.f, MaxWAL: 200 << 10})
	must(t, err)
	must(t, next.Close())
}
