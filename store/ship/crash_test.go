package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// memDisk is a disk that fails, and that forgets what was not synced.
type memDisk struct {
	files   map[string]*memFile // by path; as the running process sees it
	durable map[string]*memFile // which of them a power cut leaves
	ops     int
	failAt  int  // the operation that fails; 0 for none
	dies    bool // and all after it
}

type memFile struct {
	d       *memDisk
	now     []byte
	synced  []byte
	pending []change // since then
}

// change is a write, or with no bytes a truncation.
type change struct {
	at    int64
	bytes []byte
}

func (c change) apply(b []byte) []byte {
	end := c.at + int64(len(c.bytes))
	if c.bytes == nil && int64(len(b)) > end {
		return b[:end]
	}
	if int64(len(b)) < end {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[c.at:], c.bytes)
	return b
}

var errInjected = errors.New("injected")

func newMemDisk() *memDisk {
	return &memDisk{files: make(map[string]*memFile), durable: make(map[string]*memFile)}
}

func (d *memDisk) op() error {
	d.ops++
	if d.failAt > 0 && (d.ops == d.failAt || d.dies && d.ops > d.failAt) {
		return errInjected
	}
	return nil
}

func (d *memDisk) open(path string) (file, error) {
	if err := d.op(); err != nil {
		return nil, err
	}
	if d.files[path] == nil {
		d.files[path] = &memFile{d: d}
	}
	return d.files[path], nil
}

func (d *memDisk) exists(path string) (bool, error) {
	return d.files[path] != nil, d.op()
}

func (d *memDisk) remove(path string) error {
	if err := d.op(); err != nil {
		return err
	}
	delete(d.files, path)
	return nil
}

func (d *memDisk) syncFolder(string) error {
	if err := d.op(); err != nil {
		return err
	}
	clear(d.durable)
	for path, f := range d.files {
		d.durable[path] = f
	}
	return nil
}

// restart is the disk after its process has died.
func (d *memDisk) restart() { d.failAt, d.ops = 0, 0 }

// cutPower is the disk after a power cut: of what was not synced any part may be there,
// in any order, and of a write any half.
func (d *memDisk) cutPower(random *rand.Rand) {
	d.restart()
	for path := range d.durable {
		if _, removed := d.files[path]; !removed && random.IntN(2) == 0 {
			delete(d.durable, path) // the removal got through
		}
	}
	for path, f := range d.files {
		if random.IntN(2) == 0 {
			d.durable[path] = f // the new name got through
		}
	}
	d.files = make(map[string]*memFile)
	for path, f := range d.durable {
		b := slices.Clone(f.synced)
		for _, c := range f.pending {
			switch n := len(c.bytes); random.IntN(3) {
			case 0:
				b = c.apply(b)
			case 1:
				if n > 512 {
					b = change{c.at, c.bytes[:random.IntN(n/512)*512+1]}.apply(b)
				}
			}
		}
		d.files[path] = &memFile{d: d, now: b, synced: slices.Clone(b)}
	}
	d.durable = make(map[string]*memFile)
	for path, f := range d.files {
		d.durable[path] = f
	}
}

func (f *memFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.d.op(); err != nil {
		return 0, err
	}
	return bytes.NewReader(f.now).ReadAt(b, at)
}

func (f *memFile) WriteAt(b []byte, at int64) (int, error) {
	c := change{at, slices.Clone(b)}
	if err := f.d.op(); err != nil {
		c.bytes = c.bytes[:len(b)/2] // a part of it is there
		if len(c.bytes) > 0 {
			f.change(c)
		}
		return len(c.bytes), err
	}
	f.change(c)
	return len(b), nil
}

func (f *memFile) change(c change) {
	f.now = c.apply(f.now)
	f.pending = append(f.pending, c)
}

func (f *memFile) Truncate(size int64) error {
	if err := f.d.op(); err != nil {
		return err
	}
	f.change(change{at: size})
	return nil
}

func (f *memFile) Sync() error {
	if err := f.d.op(); err != nil {
		return err
	}
	f.synced, f.pending = slices.Clone(f.now), nil
	return nil
}

func (f *memFile) Size() (int64, error) { return int64(len(f.now)), f.d.op() }

func (f *memFile) Close() error { return f.d.op() }

// images are the digests of all states that a copy goes through, by frame, worked out
// the naive way.
func images(t *testing.T, w *world, s *Source) map[uint32]Digest {
	t.Helper()
	size := int(s.start.PageSize)
	db := make([]byte, s.start.size())
	must(t, s.pin.ReadPages(nil, size, 1, db))
	digest := func() Digest {
		t := newTally(s.start.PageSize)
		for at := 0; at < len(db); at += size {
			_ = t.put(uint32(at/size+1), db[at:at+size])
		}
		return t.digest()
	}
	all := map[uint32]Digest{s.start.Frame: digest()}
	wal, err := w.f.OpenWAL()
	must(t, err)
	defer wal.Close()
	at := chain{Position: s.start.Position}
	for frame := make([]byte, at.frameBytes()); ; {
		if _, err := wal.ReadAt(frame, frameAt(at.Position, at.Frame+1)); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		page, pages, err := at.next(frame)
		must(t, err)
		db = change{int64(page-1) * int64(size), frame[frameHead:]}.apply(db)
		if pages > 0 {
			db = change{at: int64(pages) * int64(size)}.apply(db)
			all[at.Frame] = digest()
		}
	}
}

// streams are a source's, each sent once.
type streams struct {
	s     *Source
	pages map[uint32][]byte
	round map[Position][]byte
	end   Point
}

func (s *streams) next(p Progress) (b []byte, err error) {
	var out bytes.Buffer
	if !p.Whole {
		if b = s.pages[p.Next()]; b == nil {
			err = s.s.SendPages(context.Background(), &out, p.Next())
			b = out.Bytes()
			s.pages[p.Next()] = b
		}
		return b, err
	}
	if b = s.round[p.At.Position]; b == nil {
		s.end, err = s.s.SendRound(context.Background(), &out, p.At.Position)
		b = out.Bytes()
		s.round[p.At.Position] = b
	}
	return b, err
}

// build drives a stage from wherever it is to the end, twice cut off, and returns the
// first error that is not of a stream.
func build(d *memDisk, cfg StageConfig, s *streams, cuts bool, opened func(*Stage) error) (err error) {
	to, err := openStage(cfg, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	to.saveEvery, to.applyEvery = 9000, 20000
	if err := opened(to); err != nil {
		return err
	}
	cutPages, cutRound := cuts, cuts
	for range 20 {
		p := to.Progress()
		b, err := s.next(p)
		if err != nil {
			return err
		}
		if p.Whole && p.At == s.end {
			return to.Finish()
		}
		less := &cutPages
		if p.Whole {
			less = &cutRound
		}
		if *less {
			b = b[:len(b)/2]
		}
		*less = false
		if p.Whole {
			_, err = to.TakeRound(context.Background(), bytes.NewReader(b))
		} else {
			err = to.TakePages(context.Background(), bytes.NewReader(b))
		}
		if err != nil && (!errors.Is(err, ErrStream) || errors.Is(err, errInjected)) {
			return err
		}
	}
	return errors.New("it came to no end")
}

// Each operation fails once, or is the last one, with or without what was not synced:
// what is opened afterwards is one of the states of the copy or empty, and leads to
// the source's bytes.
func TestStageAfterEveryFailure(t *testing.T) {
	w := newWorld(t)
	for range 4 {
		w.insert(t, 4000)
	}
	s := begin(t, w)
	defer s.Close()
	s.piece = 10000
	for i := range 4 {
		w.insert(t, 5000)
		w.exec(t, "DELETE FROM note WHERE id = ?", i)
	}
	states, want := images(t, w, s), pagesOf(t, w.f)
	cfg := stageConfig(t.TempDir())
	path := (&Stage{cfg: cfg}).path()
	from := &streams{s: s, pages: make(map[uint32][]byte), round: make(map[Position][]byte)}
	again := func(to *Stage) error {
		p := to.Progress()
		if !p.Whole {
			if p.Pages > 0 && to.tally.digest() != to.rec.at.Digest {
				return errors.New("its digest is not the one that it kept")
			}
			return nil
		}
		if state, ok := states[p.At.Frame]; !ok || state != p.At.Digest {
			return fmt.Errorf("it is at %+v, which is no state of the copy", p.At)
		}
		return to.Verify(context.Background())
	}
	nothing := func(*Stage) error { return nil }
	for seed, how := range []string{"once", "dies", "power", "power"} {
		n, resumed := 1, 0
		for ; ; n++ {
			d := newMemDisk()
			d.failAt, d.dies = n, how != "once"
			err := build(d, cfg, from, true, nothing)
			if d.ops < n {
				must(t, err)
				break
			}
			if err == nil && how != "once" {
				t.Fatalf("%s at %d: nobody noticed", how, n)
			}
			if how == "power" {
				d.cutPower(rand.New(rand.NewPCG(uint64(n), uint64(seed))))
			} else {
				d.restart()
			}
			err = build(d, cfg, from, false, func(to *Stage) error {
				if to.Progress().Pages > 0 {
					resumed++
				}
				return again(to)
			})
			if err != nil && !errors.Is(err, ErrFinished) {
				t.Fatalf("%s at %d: opened again: %v", how, n, err)
			}
			if have := d.files[path]; have == nil || !bytes.Equal(have.now, want) {
				t.Fatalf("%s at %d: the copy is not the source", how, n)
			}
		}
		t.Logf("%s: %d operations, resumed after %d of the failures", how, n-1, resumed)
		if n < 100 || resumed < n/2 {
			t.Errorf("%s: %d operations, and only %d times there was something to go on with", how, n-1, resumed)
		}
	}
}
