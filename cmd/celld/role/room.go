package role

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"celld/cmd/celld/settings"
	"celld/store/room"
)

// openRoom begins to watch the disk of a member's data and returns when there is
// enough to start with: a member that its full disk has ended does not fail again
// and again, it waits until space is freed.
func openRoom(ctx context.Context, s settings.Common, member string, log *slog.Logger, metrics prometheus.Registerer) (*room.Room, error) {
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	r, err := room.Open(room.Config{Dir: s.Data, Member: member, Reserve: uint64(s.DiskReserve), Logger: log, Metrics: metrics})
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if r.Level() == room.None {
		free, reserve := r.Free()
		log.Warn("the disk is full: the start waits until space is freed", "folder", s.Data, "free_bytes", free, "reserve_bytes", reserve)
	}
	if err := r.Await(ctx, room.Short); err != nil {
		r.Close()
		return nil, fmt.Errorf("stopped while waiting for disk space: %w", err)
	}
	return r, nil
}
