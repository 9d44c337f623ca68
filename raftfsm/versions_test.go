package raftfsm

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"celld/store"
)

// older reports whether version a comes before b.
func older(a, b string) bool {
	as, bs := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	for i := range bs {
		if i >= len(as) {
			return true
		}
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return false
}

// Versions around these have known faults (DESIGN.md): a newer one is to be read
// before it is taken.
func TestLinkedVersions(t *testing.T) {
	linked := func(module string) string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module).Output()
		if err != nil {
			t.Fatalf("%s: %v", module, err)
		}
		return strings.TrimSpace(string(out))
	}
	for module, want := range map[string]string{
		"github.com/hashicorp/raft": "v1.7.3", "github.com/hashicorp/raft-boltdb/v2": "v2.3.1", "github.com/hashicorp/go-metrics": "v0.5.4",
	} {
		if got := linked(module); got != want {
			t.Errorf("%s %s is linked, not %s", module, got, want)
		}
	}
	if got := linked("go.etcd.io/bbolt"); older(got, "v1.4.3") {
		t.Errorf("bbolt %s is linked; v1.4.3 is the least", got)
	}
	if got := store.Version(); older(got, "3.51.3") {
		t.Errorf("SQLite %s is linked; 3.51.3 is the least", got)
	}
}
