package raftfsm

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCutterGoesByBytesAndAge(t *testing.T) {
	taken, fails := 0, false
	var stored atomic.Int64
	c := &cutter{stored: &stored, bytes: 1000, age: time.Hour, log: slog.New(slog.DiscardHandler), snapshot: func() error {
		if fails {
			return errors.New("no space")
		}
		taken++
		return nil
	}}
	at := time.Now()
	for i, step := range []struct {
		after  time.Duration
		stored int64 // since the step before
		fails  bool
		want   int // snapshots taken until now
	}{
		{time.Hour, 0, false, 0}, {time.Hour, 999, false, 0}, {time.Minute, 1, false, 1}, // by bytes
		{2 * time.Hour, 0, false, 1}, {time.Minute, 5, false, 1}, {59 * time.Minute, 5, false, 1}, {time.Minute, 0, false, 2}, // by age
		{time.Minute, 2000, true, 2}, {time.Second, 0, false, 3}, // tried again
	} {
		at = at.Add(step.after)
		stored.Add(step.stored)
		fails = step.fails
		if c.look(at); taken != step.want {
			t.Fatalf("step %d: %d snapshots, not %d", i, taken, step.want)
		}
	}
}

// Few entries with many bytes are cut, long before Raft would by their number.
func TestLogIsCutByBytes(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Limits.SnapshotBytes, cfg.Limits.TrailingEntries = 64<<10, 1
	})
	m := c.members[0]
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for i := range 8 {
		c.must(keyed(t, command(t, cmdPut, "t1", put{K: strings.Repeat("k", 16<<10)}), fmt.Sprint(i)))
	}
	m.group.cutter.stop() // the test looks in its place
	m.group.cutter.look(time.Now())
	m.group.cutter.quit, m.group.cutter.over = make(chan struct{}), make(chan struct{})
	go m.group.cutter.run()
	if first, err := m.group.stores.log.FirstIndex(); err != nil || first < 5 {
		t.Errorf("the log begins with entry %d, %v", first, err)
	}
}
