package node_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celld/node"
	"celld/node/nodetest"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/tenant"
)

const flipped = "flipped"

// flip changes one row of a tenant in one node's file, past the log, as a fault of
// that machine would.
func flip(t *testing.T, c *nodetest.Cluster, node string, uid tenant.UID) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.Dir(node), "tenants", string(uid), "*", "tenant.db"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	f, err := store.Open(paths[0], cellfsm.TenantSchema())
	if err != nil {
		t.Fatal(err)
	}
	// The node's transaction is open most of the time, and the next one begins when
	// it ends: a turn between two may take more than one wait of SQLite's.
	for range 10 {
		err = f.Update(func(tx *store.Tx) error {
			return tx.Savepoint(func() error {
				_, err := tx.Exec("UPDATE customer SET name = ? WHERE customer_id = 1", flipped)
				return err
			})
		})
		if err == nil || !strings.Contains(err.Error(), "database is locked") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// isFlipped reports whether a node's file has the row, false while it has no file.
func isFlipped(t *testing.T, c *nodetest.Cluster, node string, uid tenant.UID) (is bool) {
	t.Helper()
	f, release, err := c.Node(node).Space().Acquire(string(uid))
	if err != nil {
		return false
	}
	defer release()
	err = f.View(func(conn *store.Conn) error {
		_, err := conn.One("SELECT 1 FROM customer WHERE name = ?", func(*store.Row) error { is = true; return nil }, flipped)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// planted runs a cell of two tenants under load, flips a row of T7 on a follower
// that is down meanwhile, has it found, and wants it healed: T7 and T8 are written
// and read throughout without an error, and nobody else fetches anything.
func planted(t *testing.T, every time.Duration, find func(c *nodetest.Cluster, t7 nodetest.Tenant)) {
	c, series := measured(t, func(cfg *node.Config) { cfg.DigestEvery = every })
	t7, t8 := c.Provision("T7"), c.Provision("T8")
	makeCustomers(t, c, t7, 3)
	makeCustomers(t, c, t8, 3)
	victim := c.Follower()
	c.Stop(victim)
	flip(t, c, victim, t7.UID)
	c.Start(victim)
	nodetest.Await(t, "the node to be back", c.Node(victim).Ready)
	if !isFlipped(t, c, victim, t7.UID) {
		t.Fatal("nothing is flipped")
	}
	busy, other := startLoad(c, owner(t7), 2), startLoad(c, owner(t8), 1)
	busy.goesOn(t, 5)
	find(c, t7)
	nodetest.Await(t, "the row to be healed", func() bool {
		return series(victim, "celld_cell_fetched_tenants_total") > 0 && c.Node(victim).Space().Absent() == 0 && !isFlipped(t, c, victim, t7.UID)
	})
	busy.goesOn(t, 20)
	other.goesOn(t, 5)
	busy.stop(t)
	other.stop(t)
	c.EnsureSame()
	for _, name := range c.Running() {
		fetched, divergent := series(name, "celld_cell_fetched_tenants_total"), series(name, "celld_digest_divergent_total")
		if (fetched > 0) != (name == victim) || (divergent > 0) != (name == victim) {
			t.Errorf("%s fetched %v tenants and was divergent %v times; the row was flipped on %s", name, fetched, divergent, victim)
		}
	}
	if a := c.As(owner(t7), http.MethodGet, "/tenants/T7/customers/1", ""); a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestFlippedRowIsFoundOnDemandAndHealed(t *testing.T) {
	planted(t, 0, func(c *nodetest.Cluster, t7 nodetest.Tenant) { c.Compare(t7) })
}

// With a day of four seconds. That the sweep keeps to its day is shown where time
// takes no time.
func TestFlippedRowIsFoundByTheSweepAndHealed(t *testing.T) {
	planted(t, 4*time.Second, func(*nodetest.Cluster, nodetest.Tenant) {})
}

// The leader's own file may be the one that is wrong: it gives it up like any
// other, and the cell goes on under another leader.
func TestFlippedRowOfTheLeader(t *testing.T) {
	c, series := measured(t)
	t7 := c.Provision("T7")
	makeCustomers(t, c, t7, 3)
	c.EnsureSame()
	leader := c.Leader()
	flip(t, c, leader, t7.UID) // before any write: the leader would have the file's write lock
	l := startLoad(c, owner(t7), 2)
	l.goesOn(t, 5)
	c.Compare(t7)
	nodetest.Await(t, "the row to be healed", func() bool {
		return series(leader, "celld_cell_fetched_tenants_total") > 0 && c.Node(leader).Space().Absent() == 0 && !isFlipped(t, c, leader, t7.UID)
	})
	l.goesOn(t, 5)
	l.stop(t)
	c.EnsureSame()
}
