package raftfsm

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"celld/store"
	"celld/store/room"
)

// Server is a member of a group's first configuration.
type Server struct {
	ID      string // unique for all time; a rebuilt member gets a new one
	Address string // a logical name, "C2/n1" or "G1", which the transport resolves
}

// Member is a member of the current configuration.
type Member struct {
	ID      string
	Name    string // the logical name, without the id's suffix
	Address string // host:port with which it was added; "" for a founding member
	Voter   bool
}

// Timing is how patient a group is. Zero fields take the default.
type Timing struct {
	// Heartbeat is how long a follower waits for its leader before it starts an
	// election; default 1.5 s. Followers wait between one and three times this.
	Heartbeat time.Duration
	// Election is how long an election may take; default Heartbeat.
	Election time.Duration
	// Lease is how long a leader leads without hearing from a majority; default
	// Heartbeat, never more.
	Lease time.Duration
	// Commit bounds how late followers learn of the last commit when no further
	// entry follows; default 50 ms, at most doubled by chance.
	Commit time.Duration
	// Stall is how long the log's disk may take before the member gives up, not
	// counting time in which the process stood still; default DefaultStall.
	Stall time.Duration
}

// DefaultStall is how long a small write may take on a disk that works.
const DefaultStall = 5 * time.Second

// Config is what a member needs. ID, Group, Dir, Table, Space and Transport are
// required.
type Config struct {
	ID        string // from Identify
	Group     string // "C2", or "directory"
	Dir       string // of this group alone
	Voters    []Server
	Bootstrap bool // first start of a new group: every first voter starts with the identical Voters

	Table     *Table
	Guard     func(tx *store.Tx, d Definition, c *Command) error // the fence; nil lets everything through
	Space     Space
	Transport *Transport // closed by the group

	Logger  *slog.Logger          // nil for none
	Metrics prometheus.Registerer // nil for none
	Timing  Timing
	Limits  Limits
	Replace string     // how operators replace a member whose folder is damaged, a sentence; "" if they cannot
	Room    *room.Room // the space left for Dir and for the files; nil for no end of it
	// HasRoom asks another member whether its disk has room, so that leadership
	// goes there from one that has none; nil if nobody can tell.
	HasRoom func(ctx context.Context, m Member) (bool, error)
	Clock   func() time.Time // stamps commands; nil for time.Now. Nothing else reads a clock

	wrapLogs func(raft.LogStore) raft.LogStore // tests put a bad disk here
}

// Limits bounds what a group holds at a time. Zero fields take the default.
type Limits struct {
	BatchCommands int // commands in one log entry; default 256
	BatchBytes    int // bytes of one log entry; default and most 512 KiB
	Entries       int // entries between being proposed and applied; default 2
	QueueCommands int // commands that wait to be proposed; default 4096
	QueueBytes    int // their bytes; default 64 MiB

	// A snapshot is taken, and the log cut, after so many entries or bytes since
	// the last, or so long after the first of them; default 20,000, 256 MiB, one
	// hour.
	SnapshotEntries uint64
	SnapshotBytes   int64
	SnapshotAge     time.Duration
	TrailingEntries uint64 // entries kept behind a snapshot, within SnapshotBytes; default SnapshotEntries
}

const maxEntryBytes = 512 << 10

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) complete() error {
	switch {
	case c.ID == "" || c.Group == "" || c.Dir == "":
		return fmt.Errorf("raftfsm: ID, Group and Dir are required")
	case c.Table == nil || c.Space == nil || c.Transport == nil:
		return fmt.Errorf("raftfsm: Table, Space and Transport are required")
	case c.Limits.BatchBytes > maxEntryBytes:
		return fmt.Errorf("raftfsm: Limits.BatchBytes is over %d", maxEntryBytes)
	}
	defaultTo(&c.Timing.Heartbeat, 1500*time.Millisecond)
	defaultTo(&c.Timing.Election, c.Timing.Heartbeat)
	defaultTo(&c.Timing.Lease, c.Timing.Heartbeat)
	defaultTo(&c.Timing.Commit, 50*time.Millisecond)
	defaultTo(&c.Timing.Stall, DefaultStall)
	defaultTo(&c.Limits.BatchCommands, 256)
	defaultTo(&c.Limits.BatchBytes, maxEntryBytes)
	defaultTo(&c.Limits.Entries, 2)
	defaultTo(&c.Limits.QueueCommands, 4096)
	defaultTo(&c.Limits.QueueBytes, 64<<20)
	defaultTo(&c.Limits.SnapshotEntries, 20_000)
	defaultTo(&c.Limits.TrailingEntries, c.Limits.SnapshotEntries)
	defaultTo(&c.Limits.SnapshotBytes, 256<<20)
	defaultTo(&c.Limits.SnapshotAge, time.Hour)
	if c.Guard == nil {
		c.Guard = func(*store.Tx, Definition, *Command) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return nil
}
