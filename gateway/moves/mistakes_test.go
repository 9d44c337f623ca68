package moves_test

import "testing"

// TestPlantedMistakes breaks one rule at a time: a search that does not find each
// of them would prove nothing by finding none.
func TestPlantedMistakes(t *testing.T) {
	for _, c := range []struct {
		name     string
		moves    int
		wrong    mistakes
		property string
	}{
		{"W is taken before writers have drained", 1, mistakes{wBeforeDrain: true}, "a write was accepted at the source after W"},
		{"a timer thaws the source", 1, mistakes{thawByTimer: true}, "a write was accepted at the source after W"},
		{"the route is switched before the staged copy is durable", 1, mistakes{commitBeforeDurable: true}, "no good end can be reached"},
		{"an epoch is used again after an abort", 2, mistakes{epochReused: true}, "an epoch was given out twice"},
		{"the destination activates without a token", 1, mistakes{activateWithoutToken: true}, "activation without COMMIT: a cell serves at an epoch that was never placed"},
		{"the copy is read from a replica that lags", 1, mistakes{laggingSource: true}, "no good end can be reached"},
		{"a second copy begins after the freeze", 1, mistakes{copyAfterFreeze: true}, "no good end can be reached"},
		{"a cell that does not know an aborted move forgets it", 1, mistakes{abortForgotten: true}, "no good end can be reached"},
		{"the old copy is dropped before that is logged", 2, mistakes{dropUnlogged: true}, "no good end can be reached"},
		{"a rollback does not ask whether there were writes", 2, mistakes{rollbackUnasked: true}, "lost write: C2 serves without a write that was accepted"},
		{"an ABORT after COMMIT counts", 1, mistakes{abortAfterCommit: true}, "activation after ABORT"},
		{"a freeze looks at neither epoch nor terminal record", 1, mistakes{freezeByNameOnly: true}, "no good end can be reached"},
		{"the fence looks at the epoch alone", 1, mistakes{writeWhileFrozen: true}, "a write was accepted at the source after W"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := search(bounds{moves: c.moves, writes: 1, faults: 1}, c.wrong)
			if f.property != c.property {
				t.Fatalf("found %q, want %q\n%v", f.property, c.property, f)
			}
			t.Logf("%v", f)
		})
	}
}
