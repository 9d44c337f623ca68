package ship

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"pgregory.net/rapid"

	"celld/store"
)

// drive is a random history of a file that is copied.
type drive struct {
	*world
	s    *Source
	disk *memDisk   // the stage's
	past []Position // ends of rounds of this copy
}

func (d *drive) same(t fataler) {
	t.Helper()
	d.equals(t, d.disk.files[d.stage.path()].now)
}

// write changes the file in some way.
func (d *drive) write(t *rapid.T) {
	some := rapid.Int64Range(0, 40)
	switch rapid.IntRange(0, 5).Draw(t, "write") {
	case 0, 1:
		d.exec(t, "INSERT INTO note (body, extra) VALUES (hex(randomblob(?)), randomblob(?))",
			rapid.IntRange(1, 300).Draw(t, "body"), rapid.IntRange(0, 30000).Draw(t, "extra"))
	case 2: // grows, shrinks, and lets go of pages
		d.exec(t, "UPDATE note SET extra = randomblob(?) WHERE id % 40 BETWEEN ? AND ?", rapid.IntRange(0, 20000).Draw(t, "extra"),
			some.Draw(t, "from"), some.Draw(t, "to"))
	case 3:
		d.exec(t, "UPDATE note SET body = hex(randomblob(?)) WHERE id % 40 = ?", rapid.IntRange(1, 900).Draw(t, "body"), some.Draw(t, "which"))
	case 4:
		d.exec(t, "DELETE FROM note WHERE id % 40 BETWEEN ? AND ?", some.Draw(t, "from"), some.Draw(t, "to"))
	case 5:
		d.exec(t, "DELETE FROM note")
	}
	if rapid.Bool().Draw(t, "commit") {
		must(t, d.f.Commit())
	}
}

func (d *drive) move(t *rapid.T) {
	mode := rapid.SampledFrom([]string{"PASSIVE", "FULL", "RESTART", "TRUNCATE", "own"}).Draw(t, "checkpoint")
	if mode == "own" {
		must(t, d.f.Checkpoint())
	} else {
		d.checkpoint(t, mode)
	}
}

// cut is a stream that ends somewhere, or whole.
func cut(t *rapid.T, b []byte) (part []byte, whole bool) {
	n := rapid.OneOf(rapid.Just(len(b)), rapid.IntRange(0, len(b))).Draw(t, "bytes that arrive")
	return b[:n], n == len(b)
}

// ship takes pages or a round, of which not all may arrive.
func (d *drive) ship(t *rapid.T) {
	ctx := context.Background()
	d.s.piece = rapid.SampledFrom([]int{1, 5000, 20000, pieceBytes}).Draw(t, "piece")
	d.stage.applyEvery = rapid.SampledFrom([]int64{1, 30000, 8 << 20}).Draw(t, "apply")
	d.stage.saveEvery = rapid.SampledFrom([]int{1, 30000, 32 << 20}).Draw(t, "save")
	var b bytes.Buffer
	p := d.stage.Progress()
	if !p.Whole {
		first := rapid.Uint32Range(1, p.Next()).Draw(t, "first page")
		must(t, d.s.SendPages(ctx, &b, first))
		part, whole := cut(t, b.Bytes())
		err := d.stage.TakePages(ctx, bytes.NewReader(part))
		if whole != (err == nil) || err != nil && !errors.Is(err, ErrStream) {
			t.Fatalf("pages from %d on, whole: %v: %v", first, whole, err)
		}
		if at := d.stage.Progress(); at.Next() < p.Next() || at.Whole != whole {
			t.Fatalf("went from %+v to %+v", p, at)
		}
		return
	}
	if len(d.past) > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 { // for another stage
		must2(t)(d.s.SendRound(ctx, io.Discard, rapid.SampledFrom(d.past).Draw(t, "past")))
	}
	end, err := d.s.SendRound(ctx, &b, p.At.Position)
	must(t, err)
	if c := d.f.Control(); end.Index != c.Applied || end.Sequence != c.Sequence {
		t.Fatalf("the round ends at %+v, the file is at %+v", end, c)
	}
	part, whole := cut(t, b.Bytes())
	_, err = d.stage.TakeRound(ctx, bytes.NewReader(part))
	if whole != (err == nil) || err != nil && !errors.Is(err, ErrStream) {
		t.Fatalf("round to %+v, whole: %v: %v", end, whole, err)
	}
	d.past = append(d.past, end.Position)
	if whole {
		d.same(t)
		if now := d.stage.Progress().At; now != end {
			t.Fatalf("the stage is at %+v, not at %+v", now, end)
		}
		must(t, d.stage.Verify(ctx))
	}
}

func must2(t fataler) func(Point, error) {
	return func(_ Point, err error) { t.Helper(); must(t, err) }
}

func (d *drive) reopen(t *rapid.T) {
	before := d.stage.Progress()
	must(t, d.stage.Close())
	var err error
	d.stage, err = openStage(d.stage.cfg, d.disk)
	must(t, err)
	if after := d.stage.Progress(); after != before {
		t.Fatalf("opened again: %+v, was %+v", after, before)
	}
}

func TestStageEqualsSourceWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "ship")
		must(t, err)
		defer os.RemoveAll(dir)
		w := &world{f: newSourceFile(t, dir)}
		defer func() { must(t, w.f.Close()) }()
		d := &drive{world: w, disk: newMemDisk()}
		w.stage, err = openStage(stageConfig(dir), d.disk)
		must(t, err)
		defer func() { must(t, w.stage.Close()) }()
		for range rapid.IntRange(0, 10).Draw(t, "before") {
			d.write(t)
			if rapid.IntRange(0, 3).Draw(t, "move") == 0 {
				d.move(t)
			}
		}
		d.s = begin(t, w)
		defer func() { must(t, d.s.Close()) }()
		t.Repeat(map[string]func(*rapid.T){
			"write": d.write, "move": d.move, "ship": d.ship, "ship again": d.ship, "reopen": d.reopen,
		})
		for !d.stage.Progress().Whole {
			must(t, pages(d.s, d.stage))
		}
		must2(t)(round(d.s, d.stage))
		d.same(t)
		want, control, err := d.f.Digest(context.Background())
		must(t, err)
		must(t, d.stage.Close())
		for path, f := range d.disk.files { // SQLite opens real ones only
			must(t, os.WriteFile(path, f.now, 0o600))
		}
		d.stage, err = OpenStage(d.stage.cfg)
		must(t, err)
		must(t, d.stage.Inspect(func(p *store.Pin) error {
			have, err := p.Digest(context.Background())
			if have != want || p.Control() != control {
				t.Fatalf("another content: %+v, %+v", p.Control(), control)
			}
			return errors.Join(err, p.Check())
		}))
		must(t, d.stage.Finish())
		w.same(t)
	})
}

// The sum that is kept is that of the pages that are there, and depends on each byte
// and each place.
func TestDigestIsOfThePagesAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 16
		var db [][]byte
		kept := newTally(size)
		kept.old = func(page uint32) (pageHash, error) { return kept.of(page, db[page-1]), nil }
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if n := rapid.IntRange(0, 12).Draw(t, "page"); n == 0 {
				pages := rapid.IntRange(0, 12).Draw(t, "pages")
				must(t, kept.resize(uint32(pages)))
				for len(db) < pages {
					db = append(db, make([]byte, size))
				}
				db = db[:pages]
			} else {
				b := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "bytes")
				must(t, kept.put(uint32(n), b))
				for len(db) < n {
					db = append(db, make([]byte, size))
				}
				db[n-1] = b
			}
		}
		anew := newTally(size)
		for i, b := range db {
			must(t, anew.put(uint32(i+1), b))
		}
		if anew.digest() != kept.digest() || kept.pages != uint32(len(db)) {
			t.Fatalf("kept %s of %d pages, is %s of %d", kept.digest(), kept.pages, anew.digest(), len(db))
		}
		if len(db) > 1 && !bytes.Equal(db[0], db[1]) {
			swapped := newTally(size)
			db[0], db[1] = db[1], db[0]
			for i, b := range db {
				must(t, swapped.put(uint32(i+1), b))
			}
			if swapped.digest() == kept.digest() {
				t.Fatal("two pages may change places")
			}
		}
	})
}
