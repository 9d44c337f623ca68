package raftfsm

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCutterGoesByEntriesBytesAndAge(t *testing.T) {
	var (
		stored   atomic.Int64
		entries  uint64
		taken    int
		fails    bool
		trailing uint64
	)
	c := &cutter{
		stored: &stored, log: slog.New(slog.DiscardHandler), entries: func() uint64 { return entries },
		limits: Limits{SnapshotEntries: 100, SnapshotBytes: 1000, SnapshotAge: time.Hour, TrailingEntries: 50},
		snapshot: func(keep uint64) error {
			if fails {
				return errors.New("no space")
			}
			taken++
			trailing, entries = keep, 0
			return nil
		},
	}
	at := time.Now()
	for i, step := range []struct {
		after    time.Duration
		entries  uint64 // since the step before
		bytes    int64
		fails    bool
		want     int    // snapshots taken until now
		trailing uint64 // kept behind the last
	}{
		{time.Hour, 0, 0, false, 0, 0},
		{time.Hour, 9, 999, false, 0, 0}, {time.Minute, 1, 1, false, 1, 10}, // by bytes, of 100 each
		{2 * time.Hour, 0, 0, false, 1, 10},
		{time.Minute, 1, 5, false, 1, 10}, {59 * time.Minute, 1, 5, false, 1, 10}, {time.Minute, 0, 0, false, 2, 50}, // by age
		{time.Minute, 99, 99, false, 2, 50}, {time.Second, 1, 1, false, 3, 50}, // by entries
		{time.Minute, 1, 2000, true, 3, 50}, {time.Second, 0, 0, false, 4, 0}, // tried again; not one such entry fits
	} {
		at = at.Add(step.after)
		stored.Add(step.bytes)
		entries += step.entries
		fails = step.fails
		if c.look(at); taken != step.want || trailing != step.trailing {
			t.Fatalf("step %d: %d snapshots with %d entries behind the last, not %d with %d", i, taken, trailing, step.want, step.trailing)
		}
	}
}

// A disk that refuses snapshots for hours is told of once an hour, and when it is
// over.
func TestCutterWarnsOnce(t *testing.T) {
	var (
		stored atomic.Int64
		said   bytes.Buffer
		fails  = true
	)
	c := &cutter{
		stored: &stored, log: slog.New(slog.NewTextHandler(&said, nil)), entries: func() uint64 { return 100 },
		limits: Limits{SnapshotEntries: 100, SnapshotBytes: 1000, SnapshotAge: time.Hour},
		snapshot: func(uint64) error {
			if fails {
				return errors.New("input/output error")
			}
			return nil
		},
	}
	at := time.Now()
	looks := func(n int, want int) {
		t.Helper()
		said.Reset()
		for range n {
			at = at.Add(cutEvery)
			c.look(at)
		}
		if got := strings.Count(said.String(), "\n"); got != want {
			t.Errorf("%d looks, and %d lines, not %d:\n%s", n, got, want, said.String())
		}
	}
	looks(1, 1)
	looks(1799, 0)
	looks(1800, 1)
	fails = false
	looks(1, 1)
	looks(1, 0)
	fails = true
	looks(100, 1)
}

// Few entries with many bytes are cut, long before Raft would by their number.
func TestLogIsCutByBytes(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.SnapshotBytes = 64 << 10 })
	m := c.members[0]
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for i := range 16 {
		c.must(keyed(t, command(t, cmdPut, "t1", put{K: strings.Repeat("k", 16<<10)}), fmt.Sprint(i)))
	}
	m.group.cutter.stop() // the test looks in its place
	m.group.cutter.look(time.Now())
	m.group.cutter.quit, m.group.cutter.over = make(chan struct{}), make(chan struct{})
	go m.group.cutter.run()
	if first, err := m.group.stores.log.FirstIndex(); err != nil || first < 8 {
		t.Errorf("the log begins with entry %d, %v", first, err)
	}
}
