package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are the parts of the tree from the bottom up. A package imports only
// what lies below it, or its own layer.
func layers() [][]string {
	return [][]string{
		{"store/fault"},
		{"store/tenant"},
		{"store"},
		{"raftfsm"},
		{"node", "gateway"},
		{"cmd", "testdata"},
	}
}

// shared are the leaves below gateway: what both sides of the hop speak, and the
// rules of moves, which the directory's log applies.
func shared() []string {
	return []string{"gateway/problem", "gateway/identity", "gateway/body", "gateway/pattern", "gateway/hop", "gateway/moves"}
}

func under(pkg, part string) bool { return pkg == part || strings.HasPrefix(pkg, part+"/") }

func layerOf(pkg string) int {
	if slices.Contains(shared(), pkg) {
		return 2 // as low as store: they import the vocabulary alone
	}
	for i, parts := range layers() {
		for _, part := range parts {
			if pkg == part || i > 1 && under(pkg, part) {
				return i
			}
		}
	}
	return -1
}

// forbidden says why from may not import to, or nothing.
func forbidden(from, to string) string {
	a, b := layerOf(from), layerOf(to)
	switch {
	case a < 0:
		return from + " belongs to no layer"
	case b > a:
		return "imports go downwards"
	case slices.Contains(shared(), from) && b > 1:
		return "a leaf imports the vocabulary alone"
	case slices.Contains(shared(), to):
		return ""
	case under(from, "node") && under(to, "gateway"), under(from, "gateway") && under(to, "node"):
		return "gateway and node know each other by HTTP alone"
	}
	return ""
}

func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"cmd/celld", "node", true},
		{"gateway", "gateway/directory", true},
		{"gateway/directory", "raftfsm/dirfsm", true},
		{"raftfsm/cellfsm", "store", true},
		{"node/api", "gateway/problem", true},
		{"store", "store/tenant", true},
		{"node", "gateway/directory", false},
		{"gateway", "node/api", false},
		{"raftfsm", "node", false},
		{"store", "raftfsm", false},
		{"store/fault", "store/tenant", false},
		{"store/tenant", "store", false},
		{"raftfsm/dirfsm", "gateway/moves", true},
		{"raftfsm/dirfsm", "gateway/directory", false},
		{"gateway/moves", "raftfsm", false},
		{"gateway/problem", "raftfsm", false},
		{"gateway/problem", "gateway/directory", false},
		{"store", "cmd/celld/platform", false},
		{"elsewhere", "store", false},
	} {
		if why := forbidden(c.from, c.to); (why == "") != c.allowed {
			t.Errorf("%s -> %s: %q", c.from, c.to, why)
		}
	}
}

// TestImportsGoDown holds the whole module, its tests' imports apart, against the
// layers.
func TestImportsGoDown(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "celld/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	d := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		from := strings.TrimPrefix(p.ImportPath, "celld/")
		for _, to := range p.Imports {
			if to, ours := strings.CutPrefix(to, "celld/"); ours {
				if why := forbidden(from, to); why != "" {
					t.Errorf("%s imports %s: %s", from, to, why)
				}
			}
		}
	}
	if seen < 10 {
		t.Fatalf("go list found only %d packages", seen)
	}
}
