package cellfsm_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"celld/raftfsm/cellfsm"
)

// At a mark apply keeps the file that it uses for longer. It must not wait then: for
// one handle somebody waits with the space's lock, behind whom another waits who
// wants to replace a file, and all of them for apply.
func TestKeepWaitsForNobody(t *testing.T) {
	r := cellOf(t, 3)
	if err := r.space.MarkAbsent(uidOf(2), "an outlier"); err != nil {
		t.Fatal(err)
	}
	r.close()
	space, err := cellfsm.OpenSpace(r.dir, 1, nil, nil, testLog())
	if err != nil {
		t.Fatal(err)
	}
	r.space = space
	f, release, err := space.Acquire(string(testUID)) // as apply does
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, release, err := space.Acquire(string(uidOf(1)))
		if err != nil {
			t.Error(err)
			return
		}
		release()
	})
	wg.Go(func() {
		for !space.SwapIsUsed() {
			runtime.Gosched()
		}
		st, err := space.Stage(uidOf(2))
		if err = errors.Join(err, st.End()); err != nil {
			t.Error(err)
		}
	})
	for !space.SwapIsTaken() {
		runtime.Gosched()
	}
	keeping, ok := space.Keep(string(testUID), f)
	if !ok {
		t.Fatal("the file in use could not be kept")
	}
	release()
	keeping()
	wg.Wait()
	if _, ok := space.Keep(string(testUID), f); ok {
		t.Error("a file that is closed was kept")
	}
	if own, release, err := space.Acquire(""); err != nil {
		t.Error(err)
	} else {
		if again, ok := space.Keep("", own); !ok {
			t.Error("cell.db could not be kept")
		} else {
			again()
		}
		release()
	}
}
