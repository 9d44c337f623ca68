package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLocalKeepsWhatItWasTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "local.db")
	first := []string{"CREATE TABLE fact (k TEXT PRIMARY KEY, v INTEGER NOT NULL) STRICT, WITHOUT ROWID;"}
	second := append(first, "ALTER TABLE fact ADD COLUMN w INTEGER NOT NULL DEFAULT 7;")
	l, err := OpenLocal(path, first)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Update(func(c *Conn) error { return c.Query("INSERT INTO fact (k, v) VALUES ('a', 1)", nil) }); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no")
	if err := l.Update(func(c *Conn) error {
		if err := c.Query("INSERT INTO fact (k, v) VALUES ('b', 2)", nil); err != nil {
			return err
		}
		return refused
	}); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.View(func(*Conn) error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read when closed: %v", err)
	}
	if l, err = OpenLocal(path, second); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	if err := l.View(func(c *Conn) error {
		return c.Query("SELECT k, v + w FROM fact", func(r *Row) error { got[r.ColumnText(0)] = r.ColumnInt(1); return nil })
	}); err != nil || len(got) != 1 || got["a"] != 8 {
		t.Errorf("%v, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := OpenLocal(path, first); err == nil {
		l.Close()
		t.Error("a file of a newer layout was opened")
	}
}

func TestSoundnessIsChecked(t *testing.T) {
	f := newFile(t)
	for i := range 400 {
		if err := insert(f, uint64(i+1), string(rune('a'+i%26))+string(make([]byte, 200))+string(rune(i+500))); err != nil {
			t.Fatal(err)
		}
	}
	copied := filepath.Join(t.TempDir(), "c.db")
	if err := f.CopyTo(copied); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		g, err := Open(copied, testSchema)
		if err != nil {
			return err
		}
		return errors.Join(g.Check(), g.Close())
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	content := readAll(t, copied)
	copy(content[len(content)/2:], make([]byte, 2000))
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(); !IsBad(err) {
		t.Errorf("a file with a hole in its middle: %v", err)
	}
}
