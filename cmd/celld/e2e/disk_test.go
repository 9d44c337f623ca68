package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// devReserve is the disk reserve of a platform of one machine.
const devReserve = 64 << 20

// TestFullDisks fills the real, small file systems of a cell's nodes under writes:
// first the leader's, then all of them, and then frees the space. No process may
// end over it.
func TestFullDisks(t *testing.T) {
	dir := t.TempDir()
	disks, err := smallDisks(t, dir, "C2", "n1", "n2", "n3")
	if err != nil {
		t.Skipf("no small file system can be made here (%v); the tests of packages raftfsm and store do the same with fakes", err)
	}
	w := start(t, setup{dir: dir, isolate: true})
	owner := w.newUser(t)
	tenant := w.newTenantIn(t, owner, "C2")
	customer := newCustomer(t, owner, tenant)
	invoices := path("tenants", tenant, "invoices")
	first, err := write(t.Context(), owner, invoices, "first", customer)
	if err != nil {
		t.Fatal(err)
	}
	before := w.pids(t)
	old := w.awaitCell(t, "C2").leader

	writers := w.writeOn(t, owner, tenant, customer)
	disks[old].fill(t, devReserve+4<<20)
	eventually(t, "the writes have filled the leader's disk, and another node leads", func() bool {
		now := w.cell(t, "C2").leader
		return now != "" && now != old || t.Failed()
	})
	writers.goOn(t, 200)
	w.exhaust(t, disks[old])
	writers.goOn(t, 200)
	t.Logf("%d invoices were acknowledged while the disk of %s was filling up and full", writers.done.Load(), old)

	// First below the reserve, which is there so that what has been accepted can
	// still be written; then to the last byte.
	for node, d := range disks {
		if node != old {
			d.fill(t, devReserve-8<<20)
		}
	}
	refusesWrites(t, owner, invoices, "refused", customer)
	w.sameLogs(t, old)
	for node, d := range disks {
		if node != old {
			w.exhaust(t, d)
		}
	}
	refusesWrites(t, owner, invoices, "refused", customer)
	readsOn(t, owner, invoices+path(first.id))
	stood := writers.done.Load()
	for node, d := range disks {
		t.Logf("%s: %d bytes are free", node, d.free(t))
		d.empty(t)
	}
	writers.goOn(t, 200)
	refused, err := write(t.Context(), owner, invoices, "refused", customer)
	if err != nil {
		t.Fatal(err)
	}
	all := append(writers.stop(), first, refused)
	t.Logf("%d invoices acknowledged, %d of them since there was space again", len(all), int64(len(all))-stood)
	w.awaitCell(t, "C2")
	if now := w.pids(t); !maps.Equal(before, now) {
		t.Errorf("the processes were %v, and are %v", before, now)
	}
	onceEach(t, w, owner, tenant, all)
	w.equalReplicas(t, tenant)
}

// exhaust takes all space of a disk: first until its node has noticed that nothing
// may be written any more, then the rest. A node that is in the middle of a write
// when the last byte goes ends, as docs/operations.md says.
func (w *world) exhaust(t *testing.T, d smallDisk) {
	t.Helper()
	d.fill(t, devReserve/4-4<<20)
	eventually(t, "the node of "+d.mount+" notices that its disk is full", func() bool {
		raw, err := os.ReadFile(filepath.Join(w.dir, "e2e.log"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			if bytes.Contains(line, []byte("disk space has run out")) && bytes.Contains(line, []byte(d.mount)) {
				return true
			}
		}
		return false
	})
	d.fill(t, 0)
}

// sameLogs waits until all nodes of C2 but one have applied the same.
func (w *world) sameLogs(t *testing.T, but string) {
	t.Helper()
	eventually(t, "the others have applied the same", func() bool {
		var doc struct {
			Nodes []struct {
				Node    string `json:"node"`
				Applied uint64 `json:"appliedIndex"`
			} `json:"nodes"`
		}
		w.operator.get(t, path("cells", "C2")).want(t, http.StatusOK).into(t, &doc)
		at := map[uint64]bool{}
		for _, n := range doc.Nodes {
			if n.Node != but {
				at[n.Applied] = true
			}
		}
		return len(at) == 1 && !at[0]
	})
}

// refusesWrites waits until writes are refused for want of space, and says so of
// several.
func refusesWrites(t *testing.T, owner caller, invoices, reference string, customer int64) {
	t.Helper()
	r := request{method: http.MethodPost, path: invoices, key: reference, body: invoiceBody(customer).with(object{"reference": reference})}
	var last answer
	defer func() { t.Logf("the last write: %d %s", last.status, last.body) }()
	eventually(t, "writes are refused for want of space", func() bool {
		last = owner.do(t, r)
		return last.status == http.StatusServiceUnavailable && last.object(t)["type"] == "disk-full"
	})
	for range 5 {
		a := owner.do(t, r).refused(t, http.StatusServiceUnavailable, "disk-full")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("the refusal has no Retry-After: %v", a.header)
		}
	}
}

// readsOn reads a record that is there, on full nodes: as it is now from the
// leader, and as old as it may be from any of them.
func readsOn(t *testing.T, owner caller, target string) {
	t.Helper()
	for range 50 {
		owner.get(t, target).want(t, http.StatusOK)
		owner.do(t, request{method: http.MethodGet, path: target, header: http.Header{"Celld-Consistency": {"stale"}}}).want(t, http.StatusOK)
	}
}

// writers write invoices, each until it is acknowledged.
type writers struct {
	done    atomic.Int64
	ended   atomic.Bool
	working sync.WaitGroup
	results [8][]written
}

// writeOn lets invoices be written until stop is called.
func (w *world) writeOn(t *testing.T, owner caller, tenant string, customer int64) *writers {
	x := &writers{}
	invoices := path("tenants", tenant, "invoices")
	body := invoiceBody(customer).with(object{"memo": strings.Repeat("m", 2000)})
	for i := range x.results {
		x.working.Go(func() {
			for n := 0; !x.ended.Load(); n++ {
				one, err := writeBody(t.Context(), owner, invoices, fmt.Sprintf("disk-%d-%d", i, n), body)
				if t.Context().Err() != nil {
					return // the test has failed
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				x.results[i] = append(x.results[i], one)
				x.done.Add(1)
			}
		})
	}
	t.Cleanup(func() { x.stop() })
	return x
}

// goOn waits until so many more are acknowledged.
func (x *writers) goOn(t *testing.T, more int64) {
	t.Helper()
	from := x.done.Load()
	eventually(t, fmt.Sprintf("%d writes more are acknowledged", more), func() bool { return x.done.Load() >= from+more || t.Failed() })
}

func (x *writers) stop() (all []written) {
	x.ended.Store(true)
	x.working.Wait()
	for _, r := range x.results {
		all = append(all, r...)
	}
	return all
}
