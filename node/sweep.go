package node

import (
	"context"
	"time"
)

// sweep removes, until ctx ends, the folders of tenants that are no longer here. It
// begins when the node is ready: then cell.db names everything that is.
func (n *Node) sweep(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for !n.Ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	for {
		select {
		case <-n.space.SweepTold():
		case <-ctx.Done():
			return
		}
		if err := n.space.Sweep(); err != nil && ctx.Err() == nil {
			n.cfg.Logger.Warn("folders that belong to no tenant were not removed; the next start tries again", "error", err)
		}
	}
}
