package e2e

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"celld/cmd/celld/platform"
	"celld/raftfsm/mtls"
)

// pids reads which process each member has.
func (w *world) pids(t testing.TB) map[string]int {
	t.Helper()
	pids := map[string]int{}
	readJSON(t, platform.PIDsPath(w.dir), &pids)
	return pids
}

// kill ends a member's process with SIGKILL and returns when it is a new one.
func (w *world) kill(t testing.TB, member string) {
	t.Helper()
	w.strike(t, member)()
}

// strike ends a member's process with SIGKILL; what it returns waits until the
// member has another one.
func (w *world) strike(t testing.TB, member string) (restarted func()) {
	t.Helper()
	old := w.pids(t)[member]
	if old == 0 {
		t.Fatalf("%s has no process", member)
	}
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", member, err)
	}
	return func() {
		t.Helper()
		eventually(t, member+" is started again", func() bool { now := w.pids(t)[member]; return now != 0 && now != old })
	}
}

// cellState is what the operator API tells of a cell.
type cellState struct {
	key     string
	leader  string            // node's name, "" for none
	nodes   map[string]string // inner addresses
	healthy bool              // every node answers, and one leads
}

// cell asks the operator API about a cell.
func (w *world) cell(t testing.TB, name string) cellState {
	t.Helper()
	a, err := w.operator.try(context.Background(), request{method: http.MethodGet, path: path("cells", name)})
	if err != nil || a.status != http.StatusOK {
		return cellState{}
	}
	var doc struct {
		Key   string `json:"key"`
		Nodes []struct {
			Node    string `json:"node"`
			Address string `json:"address"`
			Leader  bool   `json:"leader"`
			Healthy bool   `json:"healthy"`
		} `json:"nodes"`
	}
	a.into(t, &doc)
	s := cellState{key: doc.Key, nodes: map[string]string{}, healthy: len(doc.Nodes) > 0}
	for _, n := range doc.Nodes {
		s.healthy = s.healthy && n.Healthy
		s.nodes[n.Node] = n.Address
		if n.Leader {
			s.leader = n.Node
		}
	}
	s.healthy = s.healthy && s.leader != ""
	return s
}

// awaitCell waits until every node of a cell answers and one of them leads.
func (w *world) awaitCell(t testing.TB, name string) cellState {
	t.Helper()
	var s cellState
	eventually(t, "cell "+name+" is whole", func() bool {
		s = w.cell(t, name)
		return s.healthy
	})
	return s
}

// inner is a client of a node's inner port with the identity of a member of the
// platform, "" for none.
func (w *world) inner(t testing.TB, member, cell, node string) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	if member != "" {
		pki, err := mtls.LoadDir(filepath.Join(w.dir, "run", filepath.FromSlash(member)))
		if err != nil {
			t.Fatal(err)
		}
		config = mtls.ClientConfig(pki, mtls.Node(cell, node), "http/1.1")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}
