package raftfsm

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// cutter has snapshots taken, and the log cut behind them, by bytes and by age;
// Raft itself goes by the number of entries alone. Whichever comes first counts.
//
// It owns one goroutine, which stop waits for.
type cutter struct {
	snapshot func() error
	stored   *atomic.Int64 // bytes of entries stored by this process
	done     int64         // of them, those before the last snapshot
	bytes    int64
	age      time.Duration
	log      *slog.Logger

	since time.Time // of the first look that found something new; zero for none
	quit  chan struct{}
	over  chan struct{}
}

// cutEvery is how often the cutter looks.
const cutEvery = 5 * time.Second

func newCutter(g *Group, stored *atomic.Int64) *cutter {
	return &cutter{
		snapshot: g.Snapshot, stored: stored, bytes: g.cfg.Limits.SnapshotBytes, age: g.cfg.Limits.SnapshotAge, log: g.cfg.Logger,
		quit: make(chan struct{}), over: make(chan struct{}),
	}
}

func (c *cutter) run() {
	defer close(c.over)
	tick := time.NewTicker(cutEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.look(now)
		case <-c.quit:
			return
		}
	}
}

// look takes a snapshot if it is time to. One that fails is tried again at the
// next look.
func (c *cutter) look(now time.Time) {
	stored := c.stored.Load()
	if stored == c.done {
		c.since = time.Time{}
		return
	}
	if c.since.IsZero() {
		c.since = now
	}
	if stored-c.done < c.bytes && now.Sub(c.since) < c.age {
		return
	}
	switch err := c.snapshot(); {
	case err == nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
		c.done = stored
		c.since = time.Time{}
	case !errors.Is(err, raft.ErrRaftShutdown):
		c.log.Warn("no snapshot was taken; the log stays as long as it is", "error", err)
	}
}

func (c *cutter) stop() {
	close(c.quit)
	<-c.over
}
