package node

import (
	"context"
	"fmt"
	"time"

	"celld/store/stall"
)

// leaveTime bounds how long Close waits for what uses a disk that hangs.
const leaveTime = 5 * time.Second

// giveUp ends the node because its disk hangs: it hands leadership over, and
// answers nobody any more.
func (n *Node) giveUp(err *stall.Error) {
	n.cfg.Logger.Error("the disk hangs; this node stops", "file", err.Call.Path, "error", err)
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Timing.Stall/2)
	defer cancel()
	n.group.Abandon(ctx, err)
	n.fail(err)
}

// diskHangs reports whether a call to the disk does not return, or has not for
// half of the time after which that is certain.
func (n *Node) diskHangs() bool {
	return n.disk.Err() != nil || n.disk.Waiting() > n.cfg.Timing.Stall/2
}

// closeOrLeave closes the node. Where the disk hangs nobody can end what waits for
// it: that is left behind, for the end of the process. A second life of the node in
// this process would meet its files in use by a commit that may yet succeed.
func (n *Node) closeOrLeave(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- n.close(ctx) }()
	hangs, disk := n.hangs, n.disk.Hangs()
	var late <-chan time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-disk:
			disk = nil
			n.fail(n.disk.Err()) // while closing nobody else looks
		case <-hangs:
			hangs, late = nil, time.After(leaveTime)
		case <-late:
			return fmt.Errorf("what uses the disk was left behind: %w", n.hang)
		}
	}
}
