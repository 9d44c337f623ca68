package cellfsm_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/tenant"
)

// at is a moment of the fake day that the tests play.
func at(d time.Duration) int64 { return (1000*time.Hour + d).Microseconds() }

// keyedCustomer creates a customer under a key at a moment.
func keyedCustomer(t *testing.T, key string, moment int64) raftfsm.Command {
	c := command(t, cellfsm.CreateCustomerNumber, testUID, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: key}})
	c.Key = &raftfsm.Key{Actor: "U7", Operation: "createCustomer", Key: key, Hash: sha256.Sum256([]byte(key))}
	c.At = moment
	return c
}

func pruning(t *testing.T, keys, audit, moment int64, limit int) raftfsm.Command {
	c := command(t, cellfsm.PruneNumber, testUID, 1, cellfsm.Prune{Keys: keys, Audit: audit, Limit: limit})
	c.At = moment
	return c
}

// A key replays for as long as it is kept: at 23:59 always, and when it has been
// pruned after its time the same request is a new one.
func TestKeysAreKeptForADay(t *testing.T) {
	r := newCell(t)
	first := result[cellfsm.Customer](t, r.do(keyedCustomer(t, "k", at(0))))
	day := 24 * time.Hour
	for _, moment := range []time.Duration{23*time.Hour + 59*time.Minute, day} {
		r.refused("nothing-to-prune", pruning(t, at(moment-day), 0, at(moment), 100))
		if out := r.do(keyedCustomer(t, "k", at(moment))); !out.Replayed || result[cellfsm.Customer](t, out).ID != first.ID {
			t.Errorf("after %s: %+v", moment, out)
		}
	}
	after := day + time.Microsecond
	if got := result[cellfsm.Pruned](t, r.do(pruning(t, at(after-day), 0, at(after), 100))); got.Keys != 1 || got.Audit != 0 {
		t.Errorf("pruned %+v", got)
	}
	if out := r.do(keyedCustomer(t, "k", at(after))); out.Replayed || result[cellfsm.Customer](t, out).ID == first.ID {
		t.Errorf("after it was pruned: %+v", out)
	}
	r.refused("nothing-to-prune", pruning(t, at(after-day), 0, at(after), 100))
	if out := r.do(keyedCustomer(t, "k", at(2*day))); !out.Replayed {
		t.Errorf("%+v", out)
	}
}

// The clock of the proposers steps back and forth by hours; within the tenant time
// does not, so rows go in their order.
func TestPruneAfterTheClockStepped(t *testing.T) {
	r := newCell(t)
	hour := func(h int) time.Duration { return time.Duration(h) * time.Hour }
	for i, h := range []int{0, 3, 0, 1, 4} { // as kept: 0, 3, 3, 3, 4
		r.do(keyedCustomer(t, fmt.Sprint(i), at(hour(h))))
	}
	r.view(func(c *store.Conn) error {
		last := int64(0)
		return c.Query("SELECT at FROM audit ORDER BY sequence", func(row *store.Row) error {
			if row.ColumnInt64(0) < last {
				t.Error("time went back")
			}
			last = row.ColumnInt64(0)
			return nil
		})
	})
	if got := result[cellfsm.Pruned](t, r.do(pruning(t, at(hour(2)), 0, at(hour(-3)), 100))); got.Keys != 1 {
		t.Errorf("before the step: %+v", got)
	}
	if got := result[cellfsm.Pruned](t, r.do(pruning(t, at(hour(4)), 0, at(hour(30)), 100))); got.Keys != 3 || r.count(testUID, "idempotency") != 1 {
		t.Errorf("up to the step: %+v, %d left", got, r.count(testUID, "idempotency"))
	}
	if _, ctl := r.digest(testUID); ctl.LastTime != at(hour(30)) {
		t.Errorf("last time %d", ctl.LastTime)
	}
}

func TestPruneIsBoundedAndFenced(t *testing.T) {
	r := newCell(t)
	const n = 25
	for i := range n {
		r.do(keyedCustomer(t, fmt.Sprint(i), at(time.Duration(i))))
	}
	late := at(time.Hour)
	for _, limit := range []int{0, -1, 1001} {
		r.refused("invalid-prune", pruning(t, late, late, late, limit))
	}
	wrong := pruning(t, late, late, late, 10)
	wrong.Epoch = 2
	r.refused("placement-changed", wrong)
	r.setControl(func(c *store.Control) { c.State, c.Move = tenant.Frozen, "M1" })
	r.refused("tenant-frozen", pruning(t, late, late, late, 10))
	r.setControl(func(c *store.Control) { c.State, c.Move = tenant.Active, "" })

	body := cellfsm.Prune{Keys: late, Audit: late, Limit: 10}
	for _, want := range []cellfsm.Pruned{{Keys: 10, Audit: 10}, {Keys: 10, Audit: 10}, {Keys: 5, Audit: 5}} {
		if prunable, err := r.space.Prunable(testUID, body); err != nil || !prunable {
			t.Errorf("prunable: %v %v", prunable, err)
		}
		if got := result[cellfsm.Pruned](t, r.do(pruning(t, body.Keys, body.Audit, late, body.Limit))); got != want {
			t.Errorf("pruned %+v, want %+v", got, want)
		}
	}
	if prunable, err := r.space.Prunable(testUID, body); err != nil || prunable {
		t.Errorf("prunable: %v %v", prunable, err)
	}
	r.refused("nothing-to-prune", pruning(t, late, late, late, 10))
	if r.count(testUID, "idempotency") != 0 || r.count(testUID, "audit") != 0 || r.count(testUID, "outbox") != 0 || r.count(testUID, "customer") != n {
		t.Error("something else was pruned, or something is left")
	}
	// Ids and sequence numbers go on: they do not follow from the rows that went.
	if c := result[cellfsm.Customer](t, r.do(keyedCustomer(t, "next", late))); c.ID != n+1 {
		t.Errorf("%+v", c)
	}
	if _, ctl := r.digest(testUID); ctl.Sequence != n+4 {
		t.Errorf("sequence %d", ctl.Sequence)
	}
}

// Random writes and prunes against a list of what should be left.
func TestPruneAgainstTheNaiveTwin(t *testing.T) {
	r := newCell(t)
	random := rand.New(rand.NewPCG(7, 7))
	type row struct {
		key string
		at  int64
	}
	var keys, audit []row
	now := at(0)
	for i := range 400 {
		now = max(now, now+random.Int64N(1000)-200)
		if random.IntN(4) > 0 {
			key := row{fmt.Sprint(i), now}
			if random.IntN(3) == 0 {
				c := keyedCustomer(t, key.key, now)
				c.Key, key.key = nil, ""
				r.do(c)
			} else {
				r.do(keyedCustomer(t, key.key, now))
				keys = append(keys, key)
			}
			audit = append(audit, key)
			continue
		}
		beforeKeys, limit := now-random.Int64N(5000), 1+random.IntN(20)
		beforeAudit := beforeKeys - random.Int64N(5000)
		r.do(pruning(t, beforeKeys, beforeAudit, now, limit)) // a refusal where there is nothing
		for r.count(testUID, "idempotency") < len(keys) {
			if keys[0].at >= beforeKeys {
				t.Fatalf("step %d: a key from %d went, the bound is %d", i, keys[0].at, beforeKeys)
			}
			keys = keys[1:]
		}
		for r.count(testUID, "audit") < len(audit) {
			if audit[0].at >= beforeAudit {
				t.Fatalf("step %d: an audit row from %d went, the bound is %d", i, audit[0].at, beforeAudit)
			}
			audit = audit[1:]
		}
	}
	for { // to the end
		if out := r.do(pruning(t, now-1000, now-3000, now, 7)); out.Err != nil {
			break
		}
	}
	left := 0
	for _, k := range keys {
		if k.at >= now-1000 {
			left++
		}
	}
	if got := r.count(testUID, "idempotency"); got != left {
		t.Errorf("%d keys are left, want %d", got, left)
	}
}
