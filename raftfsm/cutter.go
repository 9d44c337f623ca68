package raftfsm

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"celld/store/room"
)

// cutter has snapshots taken, and the log cut behind them: by entries, by bytes
// and by age, whichever comes first. Raft itself goes by entries alone, and looks
// every few minutes.
//
// It owns one goroutine, which stop waits for.
type cutter struct {
	entries  func() uint64               // that a snapshot would add to the last one; 0 while none may be taken
	snapshot func(trailing uint64) error // keeps so many entries behind it
	stored   *atomic.Int64               // bytes of entries stored by this process
	done     int64                       // of them, those before the last snapshot
	limits   Limits
	log      *slog.Logger

	since  time.Time // of the first look that found something new; zero for none
	warned time.Time // that snapshots fail; zero while they do not
	quit   chan struct{}
	over   chan struct{}
}

// cutEvery is how often the cutter looks, warnAgain how often it says that
// snapshots still fail.
const (
	cutEvery  = 2 * time.Second
	warnAgain = time.Hour
)

func newCutter(g *Group, stored *atomic.Int64) *cutter {
	return &cutter{
		entries: g.uncut, snapshot: g.cut, stored: stored, limits: g.cfg.Limits, log: g.cfg.Logger,
		quit: make(chan struct{}), over: make(chan struct{}),
	}
}

// uncut is how many entries are behind no snapshot; 0 while absent files are still
// to be caught up from them, and without disk space to write one.
func (g *Group) uncut() uint64 {
	applied, floor := g.Applied(), g.Floor()
	if applied <= floor || g.cfg.Space.Absent() > 0 || g.cfg.Room.Level() == room.None {
		return 0
	}
	return applied - floor
}

func (g *Group) cut(trailing uint64) error {
	reload := g.raft.ReloadableConfig()
	reload.TrailingLogs = trailing
	if err := g.raft.ReloadConfig(reload); err != nil {
		return err
	}
	return g.Snapshot()
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
// next look. What stays behind it, for followers that lag, is bounded in bytes by
// the mean size of the entries that are new.
func (c *cutter) look(now time.Time) {
	entries, stored := c.entries(), c.stored.Load()
	if entries == 0 {
		c.since = time.Time{}
		return
	}
	if c.since.IsZero() {
		c.since = now
	}
	bytes := stored - c.done
	if entries < c.limits.SnapshotEntries && bytes < c.limits.SnapshotBytes && now.Sub(c.since) < c.limits.SnapshotAge {
		return
	}
	trailing := c.limits.TrailingEntries
	if each := bytes / int64(entries); each > 0 {
		trailing = min(trailing, uint64(c.limits.SnapshotBytes/each))
	}
	switch err := c.snapshot(trailing); {
	case err == nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
		c.done = stored
		c.since = time.Time{}
		if !c.warned.IsZero() {
			c.warned = time.Time{}
			c.log.Info("snapshots are taken again, and the log is cut")
		}
		c.log.Debug("the log was cut", "entries", entries, "bytes", bytes, "kept", trailing)
	case !errors.Is(err, raft.ErrRaftShutdown) && (c.warned.IsZero() || now.Sub(c.warned) >= warnAgain):
		c.warned = now
		c.log.Warn("no snapshot was taken; the log stays as long as it is", "error", err)
	}
}

func (c *cutter) stop() {
	close(c.quit)
	<-c.over
}
