package steps_test

import (
	"path/filepath"
	"testing"

	"celld/store"
	"celld/store/steps"
)

func TestOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	schema := &store.Schema{Kind: "test", Migrations: []string{"CREATE TABLE n (n INTEGER PRIMARY KEY) STRICT"}}
	if err := store.Create(path, schema, store.Control{}, 0); err != nil {
		t.Fatal(err)
	}
	f, err := store.Open(path, schema)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.View(func(c *store.Conn) error {
		// count is how many steps a statement takes for so many rows.
		count := func(rows int) int64 {
			before := steps.Of(c)
			err := c.Query("SELECT value FROM (WITH RECURSIVE s(value) AS (SELECT 1 UNION ALL SELECT value+1 FROM s) SELECT value FROM s LIMIT ?)", nil, rows)
			if err != nil {
				t.Fatal(err)
			}
			return steps.Of(c) - before
		}
		if few, many := count(100), count(10_000); few < 100 || many < 90*few || many > 110*few {
			t.Errorf("%d steps for 100 rows, %d for 10000", few, many)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
