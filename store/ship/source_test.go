package ship

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"celld/store"
)

// failing is a writer, or a file, of which the n-th operation fails.
type failing struct {
	scratch
	io.Writer
	n int
}

func (f *failing) op() error {
	if f.n--; f.n == 0 {
		return errInjected
	}
	return nil
}

func (f *failing) Write(b []byte) (int, error) {
	if err := f.op(); err != nil {
		n, _ := f.Writer.Write(b[:len(b)/2])
		return n, err
	}
	return f.Writer.Write(b)
}

func (f *failing) ReadAt(b []byte, at int64) (int, error) {
	if err := f.op(); err != nil {
		return 0, err
	}
	return f.scratch.ReadAt(b, at)
}

func (f *failing) WriteAt(b []byte, at int64) (int, error) {
	if err := f.op(); err != nil {
		return 0, err
	}
	return f.scratch.WriteAt(b, at)
}

// A receiver that is gone, a pace that has had enough: the source goes on from where
// the stage is, and its digest is as if nothing had been.
func TestSourceAfterEveryFailureOfItsReceiver(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		for range 4 {
			w.insert(t, 5000)
		}
		s := begin(t, w)
		s.piece = 9000
		out := &failing{n: n}
		paced := 0
		s.cfg.Pace = func(context.Context, int) error {
			if paced++; paced == n {
				return errInjected
			}
			return nil
		}
		failed := 0
		for try := 0; ; try++ {
			var b bytes.Buffer
			var err error
			out.Writer = &b
			p := w.stage.Progress()
			if !p.Whole {
				if err = s.SendPages(t.Context(), out, p.Next()); err == nil {
					for i := range 4 {
						w.exec(t, "UPDATE note SET extra = zeroblob(?) WHERE id > ?", 4000+1000*i, i)
					}
				}
				taken := w.stage.TakePages(t.Context(), &b)
				if (err == nil) != (taken == nil) {
					t.Fatalf("%d: sent: %v, taken: %v", n, err, taken)
				}
			} else {
				var end Point
				if end, err = s.SendRound(t.Context(), out, p.At.Position); err == nil && end == p.At {
					break
				}
				_, taken := w.stage.TakeRound(t.Context(), &b)
				if (err == nil) != (taken == nil) {
					t.Fatalf("%d: sent: %v, taken: %v", n, err, taken)
				}
			}
			if err != nil {
				failed++
				if !errors.Is(err, errInjected) {
					t.Fatalf("%d: %v", n, err)
				}
			}
		}
		w.same(t)
		must(t, w.stage.Verify(t.Context()))
		must(t, s.Close())
		if failed == 0 {
			if n < 12 {
				t.Errorf("only %d operations were tried", n)
			}
			return
		}
	}
}

// A source that cannot keep its hashes cannot prove anything any more.
func TestSourceThatLosesItsHashesEnds(t *testing.T) {
	broke := 0
	for n := 1; ; n++ {
		w := newWorld(t)
		w.insert(t, 9000)
		s := begin(t, w)
		s.piece = 9000
		f := &failing{scratch: s.sums.f, n: n}
		s.sums.f = f
		err := pages(s, w.stage)
		if err == nil {
			w.insert(t, 9000)
			_, err = round(s, w.stage)
		}
		if err == nil && f.n > 0 {
			must(t, s.Close())
			break
		}
		if !errors.Is(err, ErrBroken) || !errors.Is(err, errInjected) {
			t.Fatalf("operation %d: %v", n, err)
		}
		broke++
		if err := s.SendPages(t.Context(), io.Discard, 1); !errors.Is(err, ErrBroken) {
			t.Errorf("it goes on: %v", err)
		}
		must(t, s.Close())
	}
	if broke < 5 {
		t.Errorf("only %d operations were tried", broke)
	}
}

func TestContextEndsASendAndNotTheCopy(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 50000)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	s := begin(t, w)
	defer s.Close()
	if err := s.SendPages(ctx, io.Discard, 1); !errors.Is(err, gone) {
		t.Error(err)
	}
	must(t, pages(s, w.stage))
	w.insert(t, 9000)
	if _, err := s.SendRound(ctx, io.Discard, s.Start().Position); !errors.Is(err, gone) {
		t.Error(err)
	}
	var b bytes.Buffer
	must2(t)(s.SendRound(t.Context(), &b, s.Start().Position))
	if _, err := w.stage.TakeRound(ctx, &b); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, err := Begin(ctx, SourceConfig{File: w.f}); !errors.Is(err, gone) {
		t.Error(err)
	}
	must2(t)(round(s, w.stage))
	w.same(t)
}

// What a source needs is gone when it is closed, also after a failure to begin.
func TestSourceLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 100)
	if _, err := Begin(t.Context(), SourceConfig{File: w.f, Dir: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("began without a place for its hashes")
	}
	s := begin(t, w)
	must(t, pages(s, w.stage))
	folder, err := os.ReadDir(filepath.Dir(w.f.Path()))
	must(t, err)
	for _, e := range folder {
		if e.Name() != "tenant.db" && e.Name() != "tenant.db-wal" && e.Name() != "tenant.db-shm" {
			t.Errorf("a source has the file %s", e.Name())
		}
	}
	must(t, errors.Join(s.Close(), s.Close()))
	before := read(t, w.f.Path()+"-wal")[:walHead]
	w.restart(t)
	if bytes.Equal(before, read(t, w.f.Path()+"-wal")[:walHead]) {
		t.Error("a closed source keeps the WAL")
	}
}

// meter notes how large writes are, and what is in use while they are made.
type meter struct {
	w            io.Writer
	most, writes int
	heap         uint64
}

func (m *meter) Write(b []byte) (int, error) {
	m.most = max(m.most, len(b))
	if m.writes++; m.writes%16 == 8 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		m.heap = max(m.heap, now.HeapAlloc)
	}
	return m.w.Write(b)
}

// A file sixteen times as large takes the same memory and the same pieces.
func TestMemoryIsThatOfOnePiece(t *testing.T) {
	measure := func(mib int) (heap uint64) {
		w := newWorld(t)
		for range mib {
			w.insert(t, 1<<20)
		}
		s := begin(t, w)
		defer s.Close()
		through := func(send func(io.Writer) error, take func(io.Reader) error) {
			r, to := io.Pipe()
			m := &meter{w: to}
			done := make(chan error)
			go func() {
				err := send(m)
				_ = to.CloseWithError(err) // a pipe's never fails
				done <- err
			}()
			must(t, take(r))
			must(t, <-done)
			if m.most > chunkHead+maxBody {
				t.Errorf("%d MiB: one write of %d bytes", mib, m.most)
			}
			heap = max(heap, m.heap)
		}
		through(func(w io.Writer) error { return s.SendPages(t.Context(), w, 1) },
			func(r io.Reader) error { return w.stage.TakePages(t.Context(), r) })
		for range mib {
			w.exec(t, "UPDATE note SET extra = zeroblob(length(extra)) WHERE id = ?", int(w.index)%mib+1)
		}
		through(func(out io.Writer) error {
			_, err := s.SendRound(t.Context(), out, s.Start().Position)
			return err
		}, func(r io.Reader) error {
			_, err := w.stage.TakeRound(t.Context(), r)
			return err
		})
		w.same(t)
		return heap
	}
	small, large := measure(4), measure(64)
	t.Logf("heap in use while sending and taking: %d KiB for 4 MiB, %d KiB for 64 MiB", small>>10, large>>10)
	if large > small+(1<<20) {
		t.Errorf("%d bytes of heap for 4 MiB, %d for 64 MiB", small, large)
	}
}

func TestPaceHearsOfEveryByte(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 600<<10)
	asked := 0
	s, err := Begin(t.Context(), SourceConfig{File: w.f, Pace: func(_ context.Context, n int) error {
		if n > pieceBytes {
			t.Errorf("%d bytes at a time", n)
		}
		// No lock of the file's is held meanwhile.
		must(t, w.f.Update(func(*store.Tx) error { return nil }))
		asked += n
		return nil
	}})
	must(t, err)
	defer s.Close()
	must(t, pages(s, w.stage))
	if want := int(s.Start().size()); asked != want {
		t.Errorf("paced %d bytes of pages, sent %d", asked, want)
	}
	asked = 0
	w.insert(t, 600<<10)
	end, err := round(s, w.stage)
	must(t, err)
	if want := end.Since(s.Start().Position); int64(asked) != want || want < 600<<10 {
		t.Errorf("paced %d bytes of frames, sent %d", asked, want)
	}
}
