package platform

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"celld/cmd/celld/client"
)

// nodesOf is what a cell's nodes say, by name, and which of them leads.
func nodesOf(t *testing.T, p *Platform, cell string) (names []string, leader string) {
	t.Helper()
	var doc struct {
		Nodes []struct {
			Node    string `json:"node"`
			Leader  bool   `json:"leader"`
			Voter   bool   `json:"voter"`
			Healthy bool   `json:"healthy"`
		} `json:"nodes"`
	}
	if err := p.admin.Get(t.Context(), "/cells/"+cell, nil, &doc); err != nil {
		t.Fatal(err)
	}
	for _, n := range doc.Nodes {
		if !n.Voter || !n.Healthy {
			t.Logf("%+v", n)
		}
		names = append(names, n.Node)
		if n.Leader {
			leader = n.Node
		}
	}
	return names, leader
}

// TestReplaceTheLeader adds a node and removes the leader while clients write, and
// starts the platform again: every acknowledged write is there, and the nodes are
// those that the cell has now.
func TestReplaceTheLeader(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Options{Dir: dir, Replicas: 3, Fixture: true})
	var acked [2][]int
	var total atomic.Int64
	var ended atomic.Bool
	var wg sync.WaitGroup
	for w := range acked {
		user := as(t, p, "U7")
		wg.Go(func() {
			for i := 0; !ended.Load(); i++ {
				var made struct {
					CustomerID int `json:"customerId"`
				}
				if err := user.Post(t.Context(), "/tenants/T7/customers", map[string]any{"name": fmt.Sprintf("w%d-%d", w, i)}, &made); err != nil {
					t.Errorf("a write: %v", err)
					return
				}
				acked[w] = append(acked[w], made.CustomerID)
				total.Add(1)
			}
		})
	}
	goesOn := func() {
		t.Helper()
		want := total.Load() + 20
		await(t, "writes to go on", func() bool { return total.Load() >= want || t.Failed() })
	}
	goesOn()
	if err := p.AddNode(t.Context(), "C2", "n4"); err != nil {
		t.Fatal(err)
	}
	goesOn()
	_, leader := nodesOf(t, p, "C2")
	if err := p.RemoveNode(t.Context(), "C2", leader); err != nil {
		t.Fatal(err)
	}
	await(t, leader+" to be gone", func() bool { return p.isGone("C2/" + leader) })
	goesOn()
	ended.Store(true)
	wg.Wait()

	want := []string{"n1", "n2", "n3", "n4"}
	want = slices.DeleteFunc(want, func(n string) bool { return n == leader })
	if names, _ := nodesOf(t, p, "C2"); !slices.Equal(names, want) {
		t.Errorf("the cell has the nodes %v", names)
	}
	stop(t, p)
	again := start(t, Options{Dir: dir})
	if names, _ := nodesOf(t, again, "C2"); !slices.Equal(names, want) {
		t.Errorf("after a restart the cell has the nodes %v", names)
	}
	user := as(t, again, "U7")
	for w := range acked {
		for i, id := range acked[w] {
			var got struct {
				Name string `json:"name"`
			}
			if err := user.Do(t.Context(), client.Call{Method: http.MethodGet, Path: fmt.Sprintf("/tenants/T7/customers/%d", id), Into: &got}); err != nil || got.Name != fmt.Sprintf("w%d-%d", w, i) {
				t.Errorf("customer %d is %q, %v", id, got.Name, err)
			}
		}
	}
}

// await asks until the answer is yes.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
