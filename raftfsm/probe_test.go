package raftfsm

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"celld/store"
	"celld/store/fault"
)

// glimpse is what a look saw.
type glimpse struct {
	mark    string
	index   uint64
	content string // what the file held, or why there was none
}

// watch notes what each mark sees, by target.
func watch(t testing.TB, fs *files) map[string][]glimpse {
	var mu sync.Mutex
	seen := make(map[string][]glimpse)
	fs.look = func(c *Command, m Mark, index uint64, f *store.File, why error) {
		g := glimpse{mark: m.ID, index: index}
		if f == nil {
			g.content = why.Error()
		} else {
			p, err := f.Pin()
			if err != nil {
				t.Error(err)
				return
			}
			err = p.Read(nil, func(c *store.Conn) error {
				return c.Query("SELECT k FROM item ORDER BY n", func(r *store.Row) error { g.content += r.ColumnText(0); return nil })
			})
			if err := errors.Join(err, p.Close()); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[c.Target] = append(seen[c.Target], g)
	}
	return seen
}

func mark(t testing.TB, target, id string) Command {
	t.Helper()
	return command(t, cmdMark, target, Mark{ID: id})
}

// A mark sees all of its own entry and of those before it, nothing behind, and
// changes nothing.
func TestMarkSeesOneIndex(t *testing.T) {
	fs := newFilesFor(t, "t1", "t2")
	f, failed := alone(t, fs)
	seen := watch(t, fs)
	put := func(k string) Command { return command(t, cmdPut, "t1", put{K: k}) }
	answers := f.ApplyBatch([]*raft.Log{
		logOf(t, 5, put("a"), mark(t, "t1", "m1"), put("b"), mark(t, "t1", "m2"), mark(t, "t2", "m3")),
		logOf(t, 6, put("c")),
		logOf(t, 7, mark(t, "t1", "m4")),
		logOf(t, 8, put("d"), mark(t, "gone", "m5")),
		logOf(t, 9, mark(t, "", "m6")),
	})
	if *failed != nil {
		t.Fatal(*failed)
	}
	want := map[string][]glimpse{
		"t1": {{"m1", 5, "ab"}, {"m2", 5, "ab"}, {"m4", 7, "abc"}},
		"t2": {{"m3", 5, ""}}, "": {{"m6", 9, ""}}, "gone": {{"m5", 8, "placement-changed: not here"}},
	}
	if got := fmt.Sprint(seen); got != fmt.Sprint(want) {
		t.Errorf("saw  %s\nwant %v", got, want)
	}
	for _, r := range answers[0].([]result) {
		if r.err != nil || r.outcome.Index != 5 || r.outcome.Replayed {
			t.Errorf("%+v", r)
		}
	}
	if ctl := fs.control(t, "t1"); ctl.Applied != 8 || ctl.Sequence != 4 {
		t.Errorf("t1 has %+v", ctl)
	}
	if ctl := fs.control(t, "t2"); ctl.Applied != 0 || ctl.Sequence != 0 {
		t.Errorf("a mark left %+v", ctl)
	}
}

// After a restart the log is applied again: a mark that the file is past of must
// not be taken for the file's content of now.
func TestMarkAppliedAgain(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	logs := []*raft.Log{
		logOf(t, 5, command(t, cmdPut, "t1", put{K: "a"}), mark(t, "t1", "m1")),
		logOf(t, 6, command(t, cmdPut, "t1", put{K: "b"})),
		logOf(t, 7, mark(t, "t1", "m2")),
	}
	f.ApplyBatch(logs)
	seen := watch(t, fs)
	f.ApplyBatch(logs)
	if *failed != nil {
		t.Fatal(*failed)
	}
	if got, want := fmt.Sprint(seen["t1"]), fmt.Sprint([]glimpse{{"m1", 5, ErrPassed.Error()}, {"m2", 7, "ab"}}); got != want {
		t.Errorf("saw %s, want %s", got, want)
	}
}

func TestUndecodableMarkStopsTheMember(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	f.ApplyBatch([]*raft.Log{logOf(t, 5, command(t, cmdMark, "t1", put{K: "a"}))})
	if *failed == nil || fault.Of(*failed) != fault.Internal {
		t.Errorf("got %v", *failed)
	}
}

// However commands and marks are spread over entries and batches, each mark sees
// what a naive walk through the log sees.
func TestMarksAgainstTheNaiveTwin(t *testing.T) {
	fs := newFilesFor(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		target := fmt.Sprintf("r%d", round)
		if err := store.Create(fs.path(target), testSchema("tenant"), store.Control{CellKey: "key"}, 0); err != nil {
			rt.Fatal(err)
		}
		f, failed := alone(t, fs)
		seen := watch(t, fs)
		var batch []*raft.Log
		var want []glimpse
		content := ""
		for index := uint64(1); index < 12; index++ {
			var commands []Command
			var marks []string
			for i := range rapid.IntRange(0, 4).Draw(rt, "commands") {
				if id := fmt.Sprintf("m%d.%d", index, i); rapid.Bool().Draw(rt, "mark") {
					commands, marks = append(commands, mark(t, target, id)), append(marks, id)
				} else {
					commands, content = append(commands, command(t, cmdPut, target, put{K: "x"})), content+"x"
				}
			}
			for _, id := range marks {
				want = append(want, glimpse{id, index, content})
			}
			batch = append(batch, logOf(t, index, commands...))
			if rapid.Bool().Draw(rt, "flush") {
				f.ApplyBatch(batch)
				batch = nil
			}
		}
		if len(batch) > 0 {
			f.ApplyBatch(batch)
		}
		if got := fmt.Sprint(seen[target]); *failed != nil || got != fmt.Sprint(want) {
			rt.Fatalf("saw  %s\nwant %v, failed with %v", got, want, *failed)
		}
	})
}
