package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Every use of a statement sees its own values, whatever an earlier one bound,
// errors included.
func TestStatementsKeepNoOlderValues(t *testing.T) {
	f := newFile(t)
	long := strings.Repeat("x", keepBound+1)
	values := []any{"a", "a", []byte("a"), nil, int64(1), 1, uint64(1), true, long, long, "b", []byte{}, []byte(nil), long[:keepBound], "a"}
	for i, first := range values {
		for j, second := range values {
			err := f.View(func(c *Conn) error {
				for _, v := range []any{first, second, first} {
					want := fmt.Sprintf("%T %v", v, v)
					got := ""
					if err := c.Query("SELECT typeof(?), ?", func(r *Row) error {
						got = r.ColumnText(0) + " " + r.ColumnText(1)
						return nil
					}, "x", v); err != nil {
						return err
					}
					if !strings.HasSuffix(got, asText(v)) {
						return fmt.Errorf("%s is %q", want, got)
					}
					if err := c.Query("SELECT typeof(?), ?", nil, v, struct{}{}); err == nil {
						return errors.New("an argument of no known type passed")
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("values %d and %d: %v", i, j, err)
			}
		}
	}
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return " "
	case []byte:
		return " " + string(v)
	case bool:
		return " 1"
	}
	return " " + fmt.Sprint(v)
}

func TestDirect(t *testing.T) {
	f := newFile(t)
	f.behind = true
	direct := func(fn func(tx *Tx) error) (inner error) {
		t.Helper()
		if err := f.Update(func(tx *Tx) error {
			inner = tx.Direct(func() error {
				tx.Control().Sequence++
				return fn(tx)
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return inner
	}
	put := func(tx *Tx, body string) error { return tx.Query("INSERT INTO note (body) VALUES (?)", nil, body) }
	number := func(tx *Tx) (n int64) {
		n, err := tx.Next("note", func(c *Conn) (n int64, err error) {
			_, err = c.One("SELECT coalesce(max(id), 0) FROM note", func(r *Row) error { n = r.ColumnInt64(0); return nil })
			return n, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for want := range int64(2) {
		if err := direct(func(tx *Tx) error {
			if n := number(tx); n != want+1 {
				t.Errorf("number %d, want %d", n, want+1)
			}
			return put(tx, fmt.Sprint(want))
		}); err != nil {
			t.Fatal(err)
		}
	}
	before, refused := digest(t, f), errors.New("no")
	for name, fn := range map[string]func(tx *Tx) error{
		"before a write":     func(tx *Tx) error { number(tx); return refused },
		"by the first write": func(tx *Tx) error { number(tx); return errors.Join(put(tx, "1"), refused) },
		"after one taken back": func(tx *Tx) error {
			return errors.Join(put(tx, "gone"), tx.TakeBack("DELETE FROM note WHERE body = 'gone'"), refused)
		},
	} {
		err := direct(fn)
		if !errors.Is(err, refused) || strings.Contains(err.Error(), "written before") {
			t.Errorf("%s: %v", name, err)
		}
		if digest(t, f) != before || f.Control().Sequence != 2 {
			t.Errorf("%s: it left a trace", name)
		}
	}
	if err := direct(func(tx *Tx) error {
		if n := number(tx); n != 3 {
			t.Errorf("after refusals the number is %d", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := direct(func(tx *Tx) error { return errors.Join(put(tx, "half"), refused) }); err == nil || !strings.Contains(err.Error(), "written before") {
		t.Errorf("after a write: %v", err)
	}
}
