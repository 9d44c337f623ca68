package node_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"celld/node"
	"celld/node/fetch"
	"celld/node/nodetest"
	"celld/raftfsm/mtls"
	"celld/store/tenant"
)

// measured is a cell whose nodes' series can be read, and whose logs are cut right
// behind a snapshot.
func measured(t *testing.T, more ...func(*node.Config)) (*nodetest.Cluster, func(node, series string) float64) {
	t.Helper()
	registries := make(map[string]*prometheus.Registry)
	c := nodetest.NewWith(t, "C2", func(cfg *node.Config) {
		registry := prometheus.NewRegistry() // a new one for each start
		registries[cfg.Name], cfg.Metrics = registry, registry
		cfg.Limits.TrailingEntries = 1
		for _, change := range more {
			change(cfg)
		}
	})
	return c, func(name, series string) float64 {
		t.Helper()
		families, err := registries[name].Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == series {
				return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatalf("there is no series %s", series)
		return 0
	}
}

func owner(of nodetest.Tenant) nodetest.Caller {
	return nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: of}
}

func makeCustomers(t *testing.T, c *nodetest.Cluster, of nodetest.Tenant, n int) {
	t.Helper()
	for range n {
		if a := c.As(owner(of), http.MethodPost, "/tenants/"+string(of.ID)+"/customers", `{"name":"`+strings.Repeat("n", 100)+`"}`); a.Status != http.StatusCreated {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
}

// A node that was away while the log was cut comes back under load. It fetches the
// tenants that changed, the busy one among them, and no others.
func TestAwayNodeFetchesWhatHasChanged(t *testing.T) {
	c, series := measured(t)
	var all []nodetest.Tenant
	for i := range 6 {
		all = append(all, c.Provision(tenant.ID(fmt.Sprint("T", 10+i))))
		makeCustomers(t, c, all[i], 2)
	}
	c.EnsureSame()
	away := c.Follower()
	c.Stop(away)
	makeCustomers(t, c, all[0], 30)
	makeCustomers(t, c, all[1], 5)
	all = append(all, c.Provision("T77"))
	l := startLoad(c, owner(all[0]), 2)
	for _, name := range c.Running() {
		if err := c.Node(name).Group().Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(away)
	nodetest.Await(t, "an absence", func() bool {
		return c.Node(away).Space().Absent() > 0 || series(away, "celld_cell_fetched_tenants_total") > 0
	})
	nodetest.Await(t, "absences to end", func() bool {
		return c.Node(away).Space().Absent() == 0 && series(away, "celld_cell_fetched_tenants_total") > 0
	})
	l.goesOn(t, 20)
	l.stop(t)
	c.EnsureSame()
	if n := series(away, "celld_cell_fetched_tenants_total"); n != 3 {
		t.Errorf("fetched %v tenants; 3 have changed", n)
	}
	// It takes snapshots again, and starts from what it has.
	if err := c.Node(away).Group().Snapshot(); err != nil {
		t.Error(err)
	}
	c.Stop(away)
	c.Start(away)
	makeCustomers(t, c, all[6], 1)
	c.EnsureSame()
	if n := series(away, "celld_cell_fetched_tenants_total"); n != 0 {
		t.Errorf("fetched %v tenants after a restart", n)
	}
}

// A node that is killed while it fetches goes on with what is left.
func TestKilledWhileFetching(t *testing.T) {
	c, series := measured(t, func(cfg *node.Config) { cfg.Fetch = fetch.Limits{Parallel: 1, BytesPerSecond: 64 << 10} })
	var all []nodetest.Tenant
	for i := range 4 {
		all = append(all, c.Provision(tenant.ID(fmt.Sprint("T", 10+i))))
	}
	c.EnsureSame()
	away := c.Follower()
	c.Stop(away)
	for _, of := range all {
		makeCustomers(t, c, of, 250)
	}
	for _, name := range c.Running() {
		if err := c.Node(name).Group().Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(away)
	nodetest.Await(t, "a part to be fetched", func() bool { return series(away, "celld_cell_fetched_tenants_total") > 0 })
	left := c.Node(away).Space().Absent()
	if left == 0 {
		t.Fatal("everything was fetched at once")
	}
	c.Kill(away)
	makeCustomers(t, c, all[0], 1)
	c.Start(away)
	c.EnsureSame()
	if n := int(series(away, "celld_cell_fetched_tenants_total")); n < 1 || n > left {
		t.Errorf("fetched %d tenants after the restart; %d were left", n, left)
	}
}

// damage overwrites all but the first page of a stopped node's file of a tenant.
func damage(t *testing.T, c *nodetest.Cluster, name string, of nodetest.Tenant) {
	t.Helper()
	path := filepath.Join(c.Dir(name), "tenants", string(of.UID), "1-0", "tenant.db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(content); i++ {
		content[i] ^= 0x55
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// One bad file stops neither its node nor the other tenants, whoever leads.
func TestDamagedFileIsFetchedAnew(t *testing.T) {
	c, series := measured(t)
	bad, good := c.Provision("T7"), c.Provision("T8")
	makeCustomers(t, c, bad, 40)
	makeCustomers(t, c, good, 1)
	c.EnsureSame()
	for round := range 2 {
		name := c.Follower()
		c.Stop(name)
		if round == 0 {
			damage(t, c, name, bad)
		}
		c.Start(name)
		before := 0.0
		if round == 1 {
			name = c.Leader()
			before = series(name, "celld_cell_fetched_tenants_total")
			if err := c.Node(name).Space().MarkAbsent(bad.UID, "a test"); err != nil {
				t.Fatal(err)
			}
		}
		makeCustomers(t, c, bad, 3)
		makeCustomers(t, c, good, 3)
		c.EnsureSame()
		if n := series(name, "celld_cell_fetched_tenants_total") - before; n != 1 {
			t.Errorf("round %d: fetched %v tenants", round, n)
		}
	}
}

// What a node says when another one asks for a file.
func TestWhoGetsAFile(t *testing.T) {
	c := nodetest.New(t, "C2")
	of := c.Provision("T7")
	makeCustomers(t, c, of, 1)
	c.EnsureSame()
	name := c.Follower()
	applied := c.Node(name).Group().Applied()
	ask := func(as string, uid tenant.UID, least uint64) (status int, slug, asOf string, size int) {
		t.Helper()
		client := c.Client(name, as)
		resp, err := client.Get(fmt.Sprintf("https://%s/internal/tenants/%s/file?min=%d", c.Address(name), uid, least))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, nodetest.Answer{Body: body}.Slug(), resp.Header.Get("Celld-As-Of"), len(body)
	}
	peer := mtls.Node("C2", "n9")
	const unknown = tenant.UID("zaaaaaaaaaaaaaaaaaaaaaaaaa")
	if status, slug, _, size := ask(peer, of.UID, applied); status != http.StatusOK || size < 4096 {
		t.Errorf("%d %s, %d bytes", status, slug, size)
	}
	if status, slug, _, _ := ask(peer, of.UID, applied+1000); status != http.StatusServiceUnavailable || slug != "behind" {
		t.Errorf("asked for more than there is: %d %s", status, slug)
	}
	if status, _, asOf, _ := ask(peer, unknown, 0); status != http.StatusNotFound || asOf == "" {
		t.Errorf("asked for a tenant that is not there: %d as of %q", status, asOf)
	}
	for _, who := range []string{mtls.Gateway("G1"), mtls.Node("C5", "n1")} {
		if status, _, _, _ := ask(who, of.UID, 0); status != http.StatusForbidden {
			t.Errorf("%s got %d", who, status)
		}
	}
	if err := c.Node(name).Space().MarkAbsent(of.UID, "a test"); err != nil {
		t.Fatal(err)
	}
	if status, slug, _, _ := ask(peer, of.UID, 0); status != http.StatusServiceUnavailable && status != http.StatusOK || status == http.StatusServiceUnavailable && slug != "tenant-absent" {
		t.Errorf("asked who lacks it: %d %s", status, slug) // it may have it again by now
	}
	c.EnsureSame()
}
