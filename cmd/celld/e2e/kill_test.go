package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rounds is how many members TestDeath kills in its write loop.
var rounds = flag.Int("e2e.rounds", 10, "members killed one after the other while invoices are written")

// maxGap is how long a cell may answer no writes after its leader died.
const maxGap = 10 * time.Second

// TestDeath kills processes with SIGKILL while others go on asking.
func TestDeath(t *testing.T) {
	w := start(t, setup{isolate: true})
	owner := w.newUser(t)
	w.awaitCell(t, "C2")
	t.Run("an answer that was lost", func(t *testing.T) { lostAnswers(t, w, owner) })
	t.Run("one register", func(t *testing.T) { register(t, w, owner) })
	t.Run("rounds", func(t *testing.T) { deaths(t, w, owner) })
}

// written is what became of one invoice that was to be written once.
type written struct {
	reference string
	first     answer // of the first request that was answered at all
	id        int64
	at        time.Time // when it was acknowledged
	doubtful  bool      // some request's outcome was not known at first
}

// write sends one invoice under one key until it is acknowledged.
func write(ctx context.Context, c caller, invoices, reference string, customer int64) (written, error) {
	return writeBody(ctx, c, invoices, reference, invoiceBody(customer))
}

// writeBody is write for an invoice with a body of its own.
func writeBody(ctx context.Context, c caller, invoices, reference string, body object) (written, error) {
	out := written{reference: reference}
	r := request{method: http.MethodPost, path: invoices, key: reference, body: body.with(object{"reference": reference})}
	for try := 0; ; try++ {
		a, err := c.try(ctx, r)
		switch {
		case ctx.Err() != nil:
			return out, ctx.Err()
		case err != nil || a.status == http.StatusServiceUnavailable:
			out.doubtful = true
			continue
		case a.status != http.StatusCreated:
			return out, fmt.Errorf("%s: %d %s", reference, a.status, a.body)
		}
		// The gateway tries again by itself: then the first answer is a replay.
		if try == 0 && a.header.Get(headerReplayed) == "true" {
			out.doubtful = true
		}
		var made struct {
			InvoiceID int64 `json:"invoiceId"`
		}
		if err := json.Unmarshal(a.body, &made); err != nil {
			return out, fmt.Errorf("%s: %w: %s", reference, err, a.body)
		}
		out.first, out.id, out.at = a, made.InvoiceID, time.Now()
		return out, nil
	}
}

// lostAnswers kills the leader of a cell under requests until one of them was
// committed and its answer lost, and shows that the key makes good for that.
func lostAnswers(t *testing.T, w *world, owner caller) {
	tenant := w.newTenantIn(t, owner, "C2")
	customer := newCustomer(t, owner, tenant)
	invoices := path("tenants", tenant, "invoices")
	const callers = 64
	var all []written
	doubtful := 0
	for round := 0; doubtful == 0; round++ {
		if round == 20 {
			t.Fatal("twenty leaders died and no answer was lost")
		}
		leader := w.awaitCell(t, "C2").leader
		results := make([][]written, callers)
		var acknowledged atomic.Int64
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := 0; !stop.Load(); n++ {
					one, err := write(t.Context(), owner, invoices, fmt.Sprintf("lost-%d-%d-%d", round, i, n), customer)
					if err != nil {
						t.Errorf("caller %d: %v", i, err)
						return
					}
					results[i] = append(results[i], one)
					acknowledged.Add(1)
				}
			})
		}
		eventually(t, "requests are under way", func() bool { return acknowledged.Load() > callers || t.Failed() })
		restarted := w.strike(t, "C2/"+leader)
		before := acknowledged.Load()
		eventually(t, "the cell answers again", func() bool { return acknowledged.Load() > before+2*callers || t.Failed() })
		stop.Store(true)
		wg.Wait()
		restarted()
		for _, r := range results {
			for _, one := range r {
				if one.doubtful {
					doubtful++
				}
				all = append(all, one)
			}
		}
	}
	t.Logf("%d of %d writes lost their first answer", doubtful, len(all))
	onceEach(t, w, owner, tenant, all)
	for _, one := range all {
		if !one.doubtful {
			continue
		}
		r := request{method: http.MethodPost, path: invoices, key: one.reference, body: invoiceBody(customer).with(object{"reference": one.reference})}
		again := owner.do(t, r).want(t, http.StatusCreated)
		if again.header.Get(headerReplayed) != "true" || !bytes.Equal(again.body, one.first.body) {
			t.Errorf("%s again: %s, was %s", one.reference, again.body, one.first.body)
		}
		r.body = invoiceBody(customer).with(object{"reference": one.reference, "amountMinor": 7})
		owner.do(t, r).refused(t, http.StatusUnprocessableEntity, "idempotency-key-reused")
	}
}

// onceEach holds what was acknowledged against what is there.
func onceEach(t *testing.T, w *world, owner caller, tenant string, all []written) {
	t.Helper()
	there := map[string]int64{}
	ids := map[int64]bool{}
	highest := int64(0)
	for _, item := range walk(t, owner, path("tenants", tenant, "invoices"), "", 500, nil) {
		id, err := item["invoiceId"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		reference, _ := item["reference"].(string)
		if there[reference] != 0 || ids[id] {
			t.Errorf("invoice %d (%s) is there twice", id, reference)
		}
		there[reference], ids[id] = id, true
		highest = max(highest, id)
	}
	for _, one := range all {
		if there[one.reference] != one.id {
			t.Errorf("%s was acknowledged as invoice %d and is there as %d (0: not at all)", one.reference, one.id, there[one.reference])
		}
	}
	if len(ids) != len(all) || highest != int64(len(all)) {
		t.Errorf("%d invoices were acknowledged, %d are there, the highest id is %d", len(all), len(ids), highest)
	}
}

// deaths kills one node of a cell after the other under writes.
func deaths(t *testing.T, w *world, owner caller) {
	const callers = 8
	tenant := w.newTenantIn(t, owner, "C2")
	customer := newCustomer(t, owner, tenant)
	invoices := path("tenants", tenant, "invoices")
	var stop atomic.Bool
	var last atomic.Int64 // when the latest acknowledgement came, unix nanoseconds
	results := make([][]written, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				one, err := write(t.Context(), owner, invoices, fmt.Sprintf("death-%d-%d", i, n), customer)
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				results[i] = append(results[i], one)
				last.Store(one.at.UnixNano())
			}
		})
	}
	leaders := 0
	for round := range *rounds {
		leader := w.awaitCell(t, "C2").leader
		// A new leader comes first in turn every other time; the rest in order.
		victim := leader
		if round%2 == 1 {
			victim = "n" + strconv.Itoa(1+round/2%3)
		}
		if victim == leader {
			leaders++
		}
		restarted := w.strike(t, "C2/"+victim)
		killed := time.Now().UnixNano()
		eventually(t, "writes go on", func() bool { return last.Load() > killed || t.Failed() })
		restarted()
		w.awaitCell(t, "C2")
	}
	// And the power fails: all of them at once. What was acknowledged is on disks.
	var back []func()
	for node := range w.awaitCell(t, "C2").nodes {
		back = append(back, w.strike(t, "C2/"+node))
	}
	killed := time.Now().UnixNano()
	eventually(t, "writes go on", func() bool { return last.Load() > killed || t.Failed() })
	for _, restarted := range back {
		restarted()
	}
	stop.Store(true)
	wg.Wait()
	var all []written
	for _, r := range results {
		all = append(all, r...)
	}
	gap := longestGap(all)
	t.Logf("%d nodes killed one by one, %d of them leaders, then all at once; %d invoices acknowledged; the longest time without an acknowledgement was %s", *rounds, leaders, len(all), gap)
	if gap > maxGap {
		t.Errorf("no write was acknowledged for %s", gap)
	}
	onceEach(t, w, owner, tenant, all)
	w.equalReplicas(t, tenant)
}

// longestGap is the longest time between two acknowledgements.
func longestGap(all []written) (gap time.Duration) {
	times := make([]time.Time, len(all))
	for i, one := range all {
		times[i] = one.at
	}
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		gap = max(gap, times[i].Sub(times[i-1]))
	}
	return gap
}

// equalReplicas waits until all replicas of a tenant stand at the same entry, and
// compares their digests.
func (w *world) equalReplicas(t *testing.T, tenant string) {
	t.Helper()
	var last answer
	defer func() {
		if t.Failed() {
			t.Logf("the replicas of %s: %d %s", tenant, last.status, last.body)
		}
	}()
	eventually(t, "the replicas of "+tenant+" are equal", func() bool {
		last = w.operator.get(t, path("tenants", tenant, "replicas"))
		return last.status == http.StatusOK && last.object(t)["equal"] == true
	})
	t.Logf("the replicas of %s: %s", tenant, last.body)
}
