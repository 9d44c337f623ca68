package verify

import (
	"context"
	"time"
)

// refreshes is how many times in a cycle the list of targets is read anew.
const refreshes = 72

const readyAgain = 20 * time.Millisecond

// betweenVisits is the least time between two of the sweep's marks.
const betweenVisits = 50 * time.Millisecond

// sweep marks what is due while this member leads, one target at a time. Followers
// keep the list, so that whoever comes to lead knows since when.
func (v *Verifier) sweep() {
	// Whether a member is ready is known from the first time on that it is asked:
	// asked by the first mark alone, it would not be ready for that one.
	for g := *v.group.Load(); !g.Ready() && v.ctx.Err() == nil; {
		await(v.ctx, readyAgain)
	}
	tick := time.NewTicker(v.tick)
	defer tick.Stop()
	var listed time.Time
	for {
		select {
		case <-tick.C:
		case <-v.ctx.Done():
			return
		}
		now := v.cfg.Clock()
		if old := now.Sub(listed); listed.IsZero() || old < 0 || old >= v.schedule.cycle/refreshes {
			targets, err := v.cfg.Targets()
			if err != nil {
				v.cfg.Logger.Warn("the targets of the digest sweep could not be listed", "error", err)
				continue
			}
			v.schedule.keep(targets, now.UnixMicro())
			listed = now
		}
		v.visitDue()
	}
}

// visitDue visits targets until none is due, or something does not go.
func (v *Verifier) visitDue() {
	g := *v.group.Load()
	for v.ctx.Err() == nil && g.IsLeader() && g.Ready() {
		target, due := v.schedule.next(v.cfg.Clock().UnixMicro())
		if !due || !v.visit(target) {
			return
		}
		await(v.ctx, betweenVisits)
	}
}

// visit has a target compared and waits for what comes of it.
func (v *Verifier) visit(target string) bool {
	id, _, err := v.Mark(v.ctx, target, false)
	if err != nil {
		v.cfg.Logger.Debug("not marked", "target", target, "error", err)
		return false
	}
	ctx, cancel := context.WithTimeout(v.ctx, 2*(pinTime+behindTime))
	defer cancel()
	_, _ = v.Verdict(ctx, id) // what it is, compare has told
	if v.cfg.Visited != nil && v.ctx.Err() == nil {
		v.cfg.Visited(v.ctx, target)
	}
	return true
}
