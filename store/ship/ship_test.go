package ship

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"

	"celld/store"
	"celld/store/tenant"
)

func TestMain(m *testing.M) {
	// Each check is a file's whole life; -rapid.checks asks for more of them.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func testSchema() *store.Schema {
	return &store.Schema{Kind: "tenant", Migrations: []string{
		`CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL, extra BLOB) STRICT; CREATE INDEX note_body ON note (body);`,
	}}
}

func testControl() store.Control {
	return store.Control{UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Tenant: "T7", CellKey: "k", Epoch: 3, State: tenant.Active}
}

// world is a tenant's file and a stage that is to become its copy.
type world struct {
	f     *store.File
	stage *Stage
	index uint64
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSourceFile(t fataler, dir string) *store.File {
	path := filepath.Join(dir, "tenant.db")
	must(t, store.Create(path, testSchema(), testControl(), 1))
	f, err := store.Open(path, testSchema())
	must(t, err)
	return f
}

func stageConfig(dir string) StageConfig {
	return StageConfig{Dir: filepath.Join(dir, "stage"), Name: "tenant.db", Schema: testSchema()}
}

func newWorld(t *testing.T) *world {
	w := &world{f: newSourceFile(t, t.TempDir())}
	t.Cleanup(func() { must(t, w.f.Close()) })
	var err error
	w.stage, err = OpenStage(stageConfig(t.TempDir()))
	must(t, err)
	t.Cleanup(func() { must(t, w.stage.Close()) })
	return w
}

func (w *world) exec(t fataler, sql string, args ...any) {
	t.Helper()
	w.index++
	must(t, w.f.Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error {
			tx.Control().Applied, tx.Control().Sequence = w.index, w.index
			_, err := tx.Exec(sql, args...)
			return err
		})
	}))
}

func (w *world) insert(t fataler, bytes int) {
	t.Helper()
	w.exec(t, "INSERT INTO note (body, extra) VALUES (?, zeroblob(?))", fmt.Sprint("note ", w.index*7919%1000003), bytes)
}

// checkpoint runs one of the mode on a connection that does not wait.
func (w *world) checkpoint(t fataler, mode string) {
	t.Helper()
	c, err := sqlite.OpenConn(w.f.Path(), sqlite.OpenReadWrite)
	must(t, err)
	c.SetBusyTimeout(0)
	stmt, _, err := c.PrepareTransient("PRAGMA wal_checkpoint(" + mode + ")")
	must(t, err)
	_, err = stmt.Step()
	must(t, errors.Join(err, stmt.Finalize(), c.Close()))
}

// move takes what the last commit has from the WAL into the file, and begins it anew.
func (w *world) restart(t fataler) {
	t.Helper()
	must(t, w.f.Checkpoint())
	w.insert(t, 10)
	must(t, w.f.Commit())
}

func begin(t fataler, w *world) *Source {
	t.Helper()
	s, err := Begin(context.Background(), SourceConfig{File: w.f})
	must(t, err)
	return s
}

// pages takes all pages that the stage lacks.
func pages(s *Source, to *Stage) error {
	var b bytes.Buffer
	if err := s.SendPages(context.Background(), &b, to.Progress().Next()); err != nil {
		return err
	}
	return to.TakePages(context.Background(), &b)
}

func round(s *Source, to *Stage) (Point, error) {
	var b bytes.Buffer
	end, err := s.SendRound(context.Background(), &b, to.Progress().At.Position)
	if err != nil {
		return end, err
	}
	got, err := to.TakeRound(context.Background(), &b)
	if err == nil && got != end {
		err = fmt.Errorf("took %+v, was sent %+v", got, end)
	}
	return end, err
}

// pagesOf reads a file's latest state as SQLite shows its pages.
func pagesOf(t fataler, f *store.File) []byte {
	t.Helper()
	p, err := f.Pin()
	must(t, err)
	defer p.Close()
	size, n, err := p.Pages(nil)
	must(t, err)
	b := make([]byte, size*int(n))
	must(t, p.ReadPages(nil, size, 1, b))
	return b
}

// same fails unless the stage has the very bytes that the file has.
func (w *world) same(t fataler) {
	t.Helper()
	w.equals(t, read(t, w.stage.path()))
}

func (w *world) equals(t fataler, have []byte) {
	t.Helper()
	want := pagesOf(t, w.f)
	if len(want) != len(have) {
		t.Fatalf("the stage has %d bytes, the file %d", len(have), len(want))
	}
	size := int(w.stage.Progress().Start.PageSize)
	for at := 0; at < len(want); at += size {
		if !bytes.Equal(want[at:at+size], have[at:at+size]) {
			t.Fatalf("page %d differs", at/size+1)
		}
	}
}

func read(t fataler, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func TestCopyFollowsAFileThatIsWritten(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		w.insert(t, 500)
	}
	s := begin(t, w)
	defer s.Close()
	if at := s.Start(); at.UID != "aaaaaaaaaaaaaaaaaaaaaaaaaa" || at.Tenant != "T7" || at.Epoch != 3 || at.Index != 100 || at.Sequence != 100 {
		t.Errorf("start %+v", at)
	}
	for range 50 {
		w.insert(t, 5000)
	}
	must(t, pages(s, w.stage))
	for i := range 5 {
		end, err := round(s, w.stage)
		must(t, err)
		if end.Index != w.index || end.Sequence != w.index {
			t.Errorf("round %d ends at index %d, sequence %d; the file is at %d", i, end.Index, end.Sequence, w.index)
		}
		w.same(t)
		for range i { // in the last but one round nothing has happened
			w.insert(t, 9000)
			w.exec(t, "DELETE FROM note WHERE id % 7 = ?", i)
		}
		must(t, w.f.Checkpoint())
	}
	must(t, w.stage.Verify(t.Context()))
	want, at, err := w.f.Digest(t.Context())
	must(t, err)
	_, err = round(s, w.stage)
	must(t, err)
	must(t, w.stage.Inspect(func(p *store.Pin) error {
		d, err := p.Digest(t.Context())
		if d != want || p.Control() != at {
			t.Errorf("the staged file has other content: control %+v, %+v", p.Control(), at)
		}
		return errors.Join(err, p.Check())
	}))
	must(t, s.Close())
	must(t, w.stage.Finish())
	folder, err := os.ReadDir(filepath.Dir(w.stage.path()))
	must(t, err)
	if len(folder) != 1 || folder[0].Name() != "tenant.db" {
		t.Errorf("a finished stage leaves %v", folder)
	}
	if _, err := OpenStage(w.stage.cfg); !errors.Is(err, ErrFinished) {
		t.Errorf("a finished copy was opened as a stage: %v", err)
	}
	g, err := store.Open(w.stage.path(), testSchema())
	must(t, err)
	if g.Control() != w.f.Control() {
		t.Errorf("control %+v", g.Control())
	}
	must(t, g.Close())
}

// The whole file, not only what SQLite shows of it: after a checkpoint of everything
// the two are one.
func TestFinishedCopyIsTheFileByteForByte(t *testing.T) {
	w := newWorld(t)
	s := begin(t, w)
	for range 100 {
		w.insert(t, 3000)
	}
	must(t, pages(s, w.stage))
	_, err := round(s, w.stage)
	must(t, err)
	must(t, s.Close())
	w.checkpoint(t, "TRUNCATE")
	if !bytes.Equal(read(t, w.f.Path()), read(t, w.stage.path())) {
		t.Error("the files differ")
	}
}

func TestLookingIntoAStageChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 9000)
	s := begin(t, w)
	defer s.Close()
	if err := w.stage.Inspect(func(*store.Pin) error { return nil }); !errors.Is(err, errNotWhole) {
		t.Errorf("looked into nothing: %v", err)
	}
	must(t, pages(s, w.stage))
	before := read(t, w.stage.path())
	for range 3 {
		must(t, w.stage.Inspect(func(p *store.Pin) error { return p.Check() }))
		w.insert(t, 100)
		_, err := round(s, w.stage)
		must(t, err)
	}
	w.same(t)
	no := errors.New("no")
	if err := w.stage.Inspect(func(*store.Pin) error { return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if bytes.Equal(before, read(t, w.stage.path())) {
		t.Error("the rounds between changed nothing either")
	}
	before = read(t, w.stage.path())
	must(t, w.stage.Inspect(func(p *store.Pin) error { return p.Check() }))
	if !bytes.Equal(before, read(t, w.stage.path())) {
		t.Error("looking changed the file")
	}
}

// A destination that comes later, or starts over, takes the same copy.
func TestSecondStageTakesTheSameCopy(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 20000)
	s := begin(t, w)
	defer s.Close()
	must(t, pages(s, w.stage))
	for range 3 {
		w.insert(t, 4000)
		_, err := round(s, w.stage)
		must(t, err)
	}
	second, err := OpenStage(stageConfig(t.TempDir()))
	must(t, err)
	defer second.Close()
	must(t, pages(s, second))
	w.insert(t, 4000)
	_, err = round(s, second)
	must(t, err)
	_, err = round(s, w.stage)
	must(t, err)
	if second.Progress() != w.stage.Progress() {
		t.Errorf("%+v and %+v", second.Progress(), w.stage.Progress())
	}
	must(t, second.Verify(t.Context()))
	w.same(t)
	must(t, w.stage.Reset())
	must(t, pages(s, w.stage))
	_, err = round(s, w.stage)
	must(t, err)
	w.same(t)
}

func TestStageTakesOnlyWhatFollows(t *testing.T) {
	w := newWorld(t)
	w.insert(t, 20000)
	s := begin(t, w)
	defer s.Close()
	ctx := t.Context()
	var b, ahead bytes.Buffer
	if _, err := s.SendRound(ctx, &b, s.Start().Position); !errors.Is(err, errNoPages) {
		t.Errorf("frames before the pages: %v", err)
	}
	for _, first := range []uint32{0, 2, 1 << 31} {
		if err := s.SendPages(ctx, &b, first); !errors.Is(err, errNoSuchPage) {
			t.Errorf("pages from %d: %v", first, err)
		}
	}
	must(t, s.SendPages(ctx, &b, 1))
	must(t, s.SendPages(ctx, &ahead, 3))
	if err := w.stage.TakePages(ctx, &ahead); !errors.Is(err, errOther) {
		t.Errorf("an empty stage took page 3: %v", err)
	}
	first := bytes.Clone(b.Bytes())
	must(t, w.stage.TakePages(ctx, &b))
	if err := w.stage.TakePages(ctx, bytes.NewReader(first)); !errors.Is(err, errOther) {
		t.Errorf("pages again: %v", err)
	}
	w.insert(t, 100)
	var r bytes.Buffer
	_, err := s.SendRound(ctx, &r, s.Start().Position)
	must(t, err)
	same := bytes.Clone(r.Bytes())
	_, err = w.stage.TakeRound(ctx, &r)
	must(t, err)
	if _, err := w.stage.TakeRound(ctx, bytes.NewReader(same)); !errors.Is(err, errOther) {
		t.Errorf("a round twice: %v", err)
	}
	// Another copy of the same file.
	must(t, s.Close())
	w.restart(t)
	other := begin(t, w)
	defer other.Close()
	if _, err := other.SendRound(ctx, &r, w.stage.Progress().At.Position); !errors.Is(err, errNoPages) {
		t.Error(err)
	}
	r.Reset()
	must(t, other.SendPages(ctx, &r, 1))
	r.Reset()
	if _, err := other.SendRound(ctx, &r, w.stage.Progress().At.Position); !errors.Is(err, ErrBroken) {
		t.Errorf("a round from another copy's position: %v", err)
	}
	_, err = other.SendRound(ctx, &r, other.Start().Position)
	must(t, err)
	if _, err := w.stage.TakeRound(ctx, &r); !errors.Is(err, errOther) {
		t.Errorf("another copy's round: %v", err)
	}
	w.stage.cfg.MaxBytes = 4096
	must(t, w.stage.Reset())
	r.Reset()
	must(t, other.SendPages(ctx, &r, 1))
	if err := w.stage.TakePages(ctx, &r); err == nil || errors.Is(err, ErrStream) {
		t.Errorf("more than it may have: %v", err)
	}
	if _, err := s.SendRound(ctx, &r, s.Start().Position); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed source: %v", err)
	}
}
