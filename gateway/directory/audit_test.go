package directory

import (
	"fmt"
	"path/filepath"
	"testing"

	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/steps"
)

// TestAuditDoesNotCostMoreWithHistory has a page for every combination of filters, at
// the beginning and deep in, where everything matches or nothing: a page of ten times
// the history takes as many steps of SQLite's.
func TestAuditDoesNotCostMoreWithHistory(t *testing.T) {
	costs := make(map[string][]int64)
	for _, size := range []int64{2_200, 22_000} {
		path := filepath.Join(t.TempDir(), "directory.db")
		must(t, store.Create(path, dirfsm.Schema(), store.Control{}, 0))
		f, err := store.Open(path, dirfsm.Schema())
		must(t, err)
		defer f.Close()
		must(t, f.Update(func(tx *store.Tx) error {
			return tx.Savepoint(func() error {
				_, err := tx.Exec(`INSERT INTO audit SELECT n, 0, 'operator', 'x', 'T7', '', '', '' FROM
					(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT ?) SELECT n FROM s)`, size)
				return err
			})
		}))
		for _, filter := range []AuditFilter{
			{}, {Tenant: "T7"}, {Tenant: "T8"}, {Actor: "operator"}, {Actor: "U7"}, {Tenant: "T7", Actor: "operator"}, {Tenant: "T7", Actor: "U7"}, {Tenant: "T8", Actor: "operator"},
		} {
			for _, deep := range []bool{false, true} {
				filter.Limit = 50
				if deep {
					filter.Before = size / 2
				}
				name := fmt.Sprintf("tenant %s, actor %s, deep %t", filter.Tenant, filter.Actor, deep)
				must(t, f.View(func(c *store.Conn) error {
					before := steps.Of(c)
					_, _, err := auditPage(c, filter)
					costs[name] = append(costs[name], steps.Of(c)-before)
					return err
				}))
			}
		}
		must(t, f.View(func(c *store.Conn) error {
			walked := int64(0)
			for filter := (AuditFilter{Tenant: "T7", Actor: "U7", Limit: 500}); ; walked++ {
				out, next, err := auditPage(c, filter)
				if err != nil || len(out) > 0 {
					t.Fatalf("%+v, %v", out, err)
				}
				if filter.Before = next; next == 0 {
					break
				}
			}
			if want := (size - 1) / maxAuditLooked; walked != want {
				t.Errorf("%d pages of nothing among %d entries, want %d and a last one", walked, size, want)
			}
			return nil
		}))
	}
	for name, c := range costs {
		if small, large := c[0], c[1]; large > small+5 || small <= 0 {
			t.Errorf("%s: %d steps, and %d with ten times the history", name, small, large)
		}
	}
}
