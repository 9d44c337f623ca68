package node_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/node"
	"celld/node/nodetest"
	"celld/store/stall"
)

// TestHangingCommit has a COMMIT of the leader's not return: the node says so and
// stops, nobody is told that a write was made which was not, the others go on, and
// the node comes back as good as the others.
func TestHangingCommit(t *testing.T) {
	var hung atomic.Pointer[string] // the node whose disk hangs
	returns := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(returns) })
	defer goOn()
	registries := map[string]*prometheus.Registry{}
	c := nodetest.NewWith(t, "C2", func(cfg *node.Config) {
		registries[cfg.Name] = prometheus.NewRegistry()
		cfg.Metrics, cfg.Timing.Stall = registries[cfg.Name], time.Second
		name := cfg.Name
		cfg.DiskCall = func(call stall.Call) {
			if at := hung.Load(); at != nil && *at == name && call.What == "COMMIT" && strings.HasSuffix(call.Path, "tenant.db") {
				<-returns
			}
		}
	})
	t7 := c.Provision("T7")
	makeCustomers(t, c, t7, 3)
	old := c.Leader()
	n := c.Node(old)
	hung.Store(&old)
	makeCustomers(t, c, t7, 1) // it is in the logs of a majority; its COMMIT is due soon
	failed, closed := c.Lost(old)
	var hang *stall.Error
	if !errors.As(failed, &hang) || hang.Call.What != "COMMIT" || !strings.Contains(failed.Error(), "tenant.db") {
		t.Errorf("the node failed with %v", failed)
	}
	if !errors.As(closed, &hang) {
		t.Errorf("the node closed with %v", closed)
	}
	if n.Ready() || n.Group().IsLeader() {
		t.Errorf("the node is ready: %v, and leads: %v", n.Ready(), n.Group().IsLeader())
	}
	if series(t, registries[old], "celld_disk_hangs") != 1 {
		t.Error("the metric does not tell")
	}
	makeCustomers(t, c, t7, 5)
	goOn()
	nodetest.Await(t, "what was left behind to end", func() bool { return series(t, registries[old], "celld_disk_hangs") < 0 })
	c.Start(old)
	makeCustomers(t, c, t7, 1)
	c.EnsureSame()
	if a := c.As(owner(t7), http.MethodGet, "/tenants/T7/customers/10", ""); a.Status != http.StatusOK {
		t.Errorf("the last customer: %d %s", a.Status, a.Body)
	}
	if a := c.As(owner(t7), http.MethodGet, "/tenants/T7/customers/11", ""); a.Status != http.StatusNotFound {
		t.Errorf("there is one too many: %d %s", a.Status, a.Body)
	}
}

// series is a gauge's value, -1 if it is not there.
func series(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}
