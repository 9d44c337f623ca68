package node_test

import (
	"net/http"
	"testing"
	"time"

	"celld/node/api"
	"celld/node/nodetest"
	"celld/store"
	"celld/store/tenant"
)

// rows counts the rows of a tenant's table on one node.
func rows(t *testing.T, c *nodetest.Cluster, node string, uid tenant.UID, table string) (n int) {
	t.Helper()
	f, release, err := c.Node(node).Space().Acquire(string(uid))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = f.View(func(conn *store.Conn) error {
		_, err := conn.One("SELECT count(*) FROM "+table, func(r *store.Row) error { n = r.ColumnInt(0); return nil })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestThreeDays plays the days of a tenant by the nodes' clock: a key replays at
// 23:59, it is pruned on all replicas once it is past its time and not before, and
// the request is a new one then; a clock that steps back and forth by three hours
// changes nothing, and time does not go back within the tenant.
func TestThreeDays(t *testing.T) {
	c := nodetest.New(t, "C2")
	t7 := c.Provision("T7")
	by := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: t7}
	type customer struct {
		ID        int64     `json:"customerId"`
		CreatedAt time.Time `json:"createdAt"`
	}
	post := func(key string) (customer, bool) {
		t.Helper()
		a := c.As(by, http.MethodPost, "/tenants/T7/customers", `{"name":"A"}`, api.HeaderKey, key)
		var got customer
		if a.Status != http.StatusCreated || a.Into(&got) != nil {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return got, a.Header.Get(api.HeaderReplayed) == "true"
	}
	first, _ := post("k")
	c.Clock.Freeze(24*time.Hour - time.Minute)
	if again, replayed := post("k"); !replayed || again.ID != first.ID {
		t.Errorf("at 23:59: %+v, replayed %v", again, replayed)
	}
	last := first.CreatedAt
	for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour, -3 * time.Hour, 3 * time.Hour} {
		c.Clock.Freeze(step)
		made, replayed := post("at " + c.Clock.Now().String() + step.String())
		if replayed || made.CreatedAt.Before(last) {
			t.Errorf("after a step of %s: %+v, replayed %v, before it was %s", step, made, replayed, last)
		}
		last = made.CreatedAt
	}
	// On to the end of the second day, and further in small steps: whoever leads
	// visits the tenant within half a day.
	c.Clock.Freeze(23 * time.Hour)
	var gone time.Time // when the first key was
	nodetest.Await(t, "the keys to be pruned everywhere", func() bool {
		if gone.IsZero() && rows(t, c, c.Leader(), t7.UID, "idempotency") < 5 {
			gone = c.Clock.Now()
		}
		for _, name := range c.Running() {
			if rows(t, c, name, t7.UID, "idempotency") != 0 {
				c.Clock.Freeze(5 * time.Minute)
				return false
			}
		}
		return true
	})
	if kept := gone.Sub(first.CreatedAt); kept < 48*time.Hour { // how late it may be is shown where time takes no time
		t.Errorf("the first key was kept for %s", kept)
	}
	if again, replayed := post("k"); replayed || again.ID == first.ID {
		t.Errorf("after it was pruned: %+v, replayed %v", again, replayed)
	}
	if n := rows(t, c, c.Leader(), t7.UID, "audit"); n != 6 {
		t.Errorf("%d audit rows", n)
	}
	c.EnsureSame()
}
