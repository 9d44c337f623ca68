package moves_test

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"celld/gateway/moves"
)

// TestEveryRunOfTheProtocol searches the whole model: a move, then another one there,
// back or again, or a rollback; and a single move with more faults. Aborts are free.
// CELLD_MODEL=large (make model) is three moves with two faults.
func TestEveryRunOfTheProtocol(t *testing.T) {
	all := []bounds{{moves: 1, writes: 3, faults: 3}, {moves: 2, writes: 2, faults: 1}}
	if os.Getenv("CELLD_MODEL") == "large" {
		all = []bounds{{moves: 1, writes: 4, faults: 6}, {moves: 2, writes: 3, faults: 3}, {moves: 3, writes: 2, faults: 2}}
	}
	var f found
	for _, b := range all {
		began := time.Now()
		f = search(b, mistakes{})
		t.Logf("%+v: %d states, %d steps, %d records, %d deep, in %v", b, f.states, f.steps, f.records, f.depth, time.Since(began).Round(time.Millisecond))
		if f.property != "" {
			t.Fatal(f)
		}
	}
	// A search that does not come to something proves nothing about it.
	for s := moves.Planned; s <= moves.RolledBack; s++ {
		if !f.met[s] {
			t.Errorf("no move was ever %s", s)
		}
	}
	for o := opPlan; o < opMistake; o++ {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(f.taken)), func(l label) bool { return l.op == o }) {
			t.Errorf("never happened: %s", label{op: o})
		}
	}
	for do := moves.Import; do <= moves.Drop; do++ {
		activity := do == moves.CopyBase || do == moves.CatchUp || do == moves.Prove
		query := do == moves.FindCopy || do == moves.Compare
		if !activity && (!query && !f.taken[label{op: opDeliver, x: uint8(do)}] || !f.taken[label{op: opAnswer, x: uint8(do)}]) {
			t.Errorf("never delivered, or never answered: %s", do)
		}
	}
}
