package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"celld/store/stall"
)

// Every call that may hang is watched, of the calls that wait for a disk.
func TestDiskCallsAreWatched(t *testing.T) {
	var made []string
	w, err := stall.New(stall.Config{Limit: time.Hour, Reached: func(c stall.Call) { made = append(made, c.What) }})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f := newFile(t)
	f.disk = w
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return insert(f, 1, "one") }, []string{"COMMIT"}},
		{f.Sync, []string{"a sync"}},
		{f.Checkpoint, []string{"a checkpoint", "a checkpoint"}},
		{f.Close, []string{"closing"}},
	} {
		made = nil
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(made, step.want) {
			t.Errorf("the disk was called for %s, not %s", strings.Join(made, ", "), strings.Join(step.want, ", "))
		}
	}
	if w.Waiting() != 0 {
		t.Error("a call that has returned counts as under way")
	}
}
