package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"celld/store/room"
)

// Group is one member of a Raft group. Its methods may be called from any
// goroutine.
type Group struct {
	cfg       Config
	name      string // logical
	raft      *raft.Raft
	progress  *progress
	proposer  *proposer
	leader    *leader
	reads     *readIndex
	yielder   *yielder
	cutter    *cutter
	metrics   *metrics
	transport *Transport
	stores    *stores
	fsm       *fsm
	logs      raft.LogStore

	failOnce sync.Once
	failed   chan error
	dead     chan struct{} // closed with the first failure, or by Close
	flying   atomic.Int64  // entries proposed here and not answered
	close    func() error
}

// maxAppendEntries bounds the entries of one AppendEntries and of one batch of
// apply. The library loads so many from the log before anybody can weigh them.
const maxAppendEntries = 128

// Open starts a member. With an empty Dir it fails unless Bootstrap is set: a
// wiped member must not come back under its old id.
func Open(cfg Config) (*Group, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	g := &Group{
		cfg: cfg, name: NameOf(cfg.Transport.name), transport: cfg.Transport,
		failed: make(chan error, 1), dead: make(chan struct{}),
	}
	g.close = sync.OnceValue(g.shutDown)
	g.metrics = newMetrics(&g.cfg)
	if err := g.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s of group %s: %w", g.name, cfg.Group, err), g.transport.Close())
	}
	return g, nil
}

func (g *Group) start() (err error) {
	if g.stores, err = openStores(&g.cfg); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.stores.close())
		}
	}()
	applied, err := g.stores.snapshots.recover(g.cfg.Group)
	if err != nil {
		return err
	}
	g.progress = newProgress(applied, func() uint64 { return g.raft.CommitIndex() })
	logs := raft.LogStore(g.stores.log)
	if g.cfg.wrapLogs != nil {
		logs = g.cfg.wrapLogs(logs)
	}
	watched := &logStore{
		LogStore: logs, path: filepath.Join(g.cfg.Dir, logFile), progress: g.progress, stall: g.cfg.Timing.Stall, fail: g.fail,
		room: g.cfg.Room,
	}
	g.transport.restraint.Store(&restraint{room: g.cfg.Room, wait: restraintRounds * g.cfg.Timing.Election})
	f := &fsm{
		table: g.cfg.Table, guard: g.cfg.Guard, space: g.cfg.Space, progress: g.progress, metrics: g.metrics,
		fail: g.fail, group: g.cfg.Group, dir: g.cfg.Dir, byTarget: make(map[string]*work),
		waiting: func() bool { return g.flying.Load() > 0 }, room: g.cfg.Room, dead: g.dead,
	}
	f.raiseFloor(applied)
	g.stores.snapshots.fsm = f
	g.fsm, g.logs = f, watched
	if g.raft, err = raft.NewRaft(g.raftConfig(), f, watched, g.stores.stable, g.stores.snapshots, g.transport); err != nil {
		return err
	}
	g.proposer = newProposer(g.raft, g.cfg.Limits, &g.flying, g.metrics)
	g.leader = newLeader(g.raft, g.progress, g.cfg.Timing.Heartbeat)
	g.reads = newReadIndex(g.raft, raft.ServerID(g.cfg.ID), g.leader, g.transport, g.cfg.Timing.Heartbeat/2, g.metrics)
	g.yielder = newYielder(g)
	g.cutter = newCutter(g, &watched.bytes)
	go g.cutter.run()
	if err := g.metrics.register(g); err != nil {
		return errors.Join(err, g.close())
	}
	return nil
}

func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(g.cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = g.cfg.Timing.Heartbeat, g.cfg.Timing.Election
	c.LeaderLeaseTimeout, c.CommitTimeout = g.cfg.Timing.Lease, g.cfg.Timing.Commit
	c.MaxAppendEntries = maxAppendEntries
	c.BatchApplyCh = true
	c.SnapshotThreshold, c.TrailingLogs = math.MaxUint64, g.cfg.Limits.TrailingEntries // the cutter decides
	c.NoSnapshotRestoreOnStart = true
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = raftLogger(g.cfg.Logger)
	return c
}

// fail stops this member: the FSM applies nothing more by itself, here its Raft
// traffic is cut, so that another member takes over. It may be called from any
// goroutine, Raft's main loop included.
func (g *Group) fail(err error) {
	g.failOnce.Do(func() {
		close(g.dead)
		g.failed <- err
		g.transport.cut()
	})
}

// Abandon stops this member for what its owner has noticed, as a failure of its own
// would: nothing is acknowledged or read here any more, and another member leads.
// One that leads hands leadership over first, if that is done before ctx ends.
func (g *Group) Abandon(ctx context.Context, err error) {
	if g.IsLeader() {
		if over := g.Transfer(ctx); over != nil {
			g.cfg.Logger.Info("leadership was not handed over", "group", g.cfg.Group, "error", over)
		}
	}
	g.fail(err)
}

// Failed delivers the error that stopped this member: it applies nothing more
// and its Raft traffic is cut. Its owner closes it and ends the process.
func (g *Group) Failed() <-chan error { return g.failed }

func (g *Group) isDead() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}

// Propose has a command applied and returns what became of it. A refusal is the
// *fault.Error of guard or handler. ErrNotLeader, ErrBusy, room.ErrFull and a fault of kind
// TooLarge are certain: nothing was proposed. ErrUnknown is not. A ctx that ends
// before the command was proposed gives ErrBusy with ctx's error as its cause,
// afterwards ErrUnknown.
func (g *Group) Propose(ctx context.Context, c Command) (Outcome, error) {
	out, err := g.propose(ctx, &c)
	g.metrics.proposed(err)
	return out, err
}

func (g *Group) propose(ctx context.Context, c *Command) (Outcome, error) {
	if g.raft.State() != raft.Leader || g.isDead() {
		return Outcome{}, ErrNotLeader
	}
	if g.cfg.Room.Level() != room.Ample {
		return Outcome{}, g.cfg.Room.Err()
	}
	c.At = g.cfg.Clock().UnixMicro()
	data, err := Encode(c)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode a command: %w", err)
	}
	return g.proposer.propose(ctx, data, c.Target == "")
}

// ReadIndex returns an index such that a read of the local files sees every
// write that was acknowledged before the call; they have been applied when it
// returns. Only the leader can: ErrNotLeader elsewhere. A follower that waits
// for the same index (WaitApplied) may then serve the read just as well. However
// long ctx lives, it gives up after some seconds: ErrNotLeader if no majority
// confirmed the leader, ErrBehind if what it confirmed was not applied.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	index, err := g.reads.confirm(ctx)
	if err != nil {
		return 0, err
	}
	if !g.progress.has(index) {
		ctx, cancel := context.WithTimeout(ctx, maxCatchUp)
		defer cancel()
		if err := g.WaitApplied(ctx, index); err != nil {
			return 0, err
		}
	}
	// The last entries may be such as no FSM gets, and no follower could wait for.
	return min(index, g.progress.applied.Load()), nil
}

// WaitApplied returns when this member has applied index, which came from an
// Outcome or from ReadIndex. When ctx ends first: ErrBehind with ctx's error as
// its cause.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	if err := g.progress.wait(ctx, index, g.dead); err != nil {
		return ErrBehind.Because(err)
	}
	return nil
}

// Applied is the last entry that this member has applied, with an effect or not.
func (g *Group) Applied() uint64 { return g.progress.applied.Load() }

// Term is the current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// IsLeader reports whether this member leads, as far as it knows.
func (g *Group) IsLeader() bool { return g.raft.State() == raft.Leader && !g.isDead() }

// Leader returns id and logical name of the leader, if one is known.
func (g *Group) Leader() (id, name string, ok bool) {
	address, server := g.raft.LeaderWithID()
	return string(server), NameOf(string(address)), server != ""
}

// LeaderSince returns since when this member leads and has applied an entry of
// its own term; the time has a monotonic reading.
func (g *Group) LeaderSince() (time.Time, bool) {
	ls := g.leader.now()
	if ls == nil || !ls.isConfirmed() {
		return time.Time{}, false
	}
	return ls.since, true
}

// Servers lists the members of the latest configuration.
func (g *Group) Servers() ([]Member, error) {
	m, err := g.Membership()
	return m.Members, err
}

// Ready reports whether this member has applied all that was committed when it
// first heard from a leader, by what that leader knew.
func (g *Group) Ready() bool {
	if g.isDead() {
		return false
	}
	if g.leader.now() != nil {
		_, confirmed := g.LeaderSince()
		if confirmed {
			g.transport.heard.CompareAndSwap(0, g.raft.CommitIndex()) // it stays ready when it hands over
		}
		return confirmed
	}
	at := g.transport.heard.Load()
	return at > 0 && g.progress.has(at)
}

// Transfer hands leadership to the most advanced follower.
func (g *Group) Transfer(ctx context.Context) error {
	return g.transfer(ctx, func() raft.Future { return g.raft.LeadershipTransfer() })
}

func (g *Group) transfer(ctx context.Context, ask func() raft.Future) error {
	if !g.IsLeader() {
		return ErrNotLeader
	}
	future := ask()
	done := make(chan error, 1)
	go func() { done <- future.Error() }() // Raft answers within an election timeout
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.dead:
		return errStopped
	}
}

// TransferTo hands leadership to the voter with that id.
func (g *Group) TransferTo(ctx context.Context, id string) error {
	at, err := g.Membership()
	if err != nil {
		return err
	}
	m, found := at.Find(func(m Member) bool { return m.ID == id && m.Voter })
	if !found {
		return fmt.Errorf("%s is no voter", id)
	}
	return g.transfer(ctx, func() raft.Future {
		return g.raft.LeadershipTransferToServer(raft.ServerID(m.ID), g.address(m.ID, m.Address))
	})
}

// Snapshot takes a snapshot now and cuts the log behind it.
func (g *Group) Snapshot() error { return g.raft.Snapshot().Error() }

// Close stops the member and its transport. Queued commands get ErrNotLeader,
// those under way their outcome or ErrUnknown. It does not hand leadership over:
// that is Transfer.
func (g *Group) Close() error { return g.close() }

// closeTimeout bounds how long Close waits for Raft. It is longer than a leader
// without a majority goes on leading; only a disk that hangs takes more.
const closeTimeout = 10 * time.Second

func (g *Group) shutDown() error {
	g.failOnce.Do(func() { close(g.dead) })
	giveUp := make(chan struct{})
	timer := time.AfterFunc(closeTimeout, func() { close(giveUp) })
	defer timer.Stop()
	g.yielder.stop()
	g.cutter.stop()
	g.proposer.stop(giveUp) // first, so that the library owes nobody an answer
	g.reads.stop()
	g.leader.stop()
	defer g.reads.end() // once the transport is closed, which Shutdown does
	down := make(chan error, 1)
	go func() { down <- g.raft.Shutdown().Error() }()
	select {
	case err := <-down:
		g.metrics.unregister()
		return errors.Join(err, g.stores.close())
	case <-giveUp:
		// The stores stay open: whatever hangs still uses them.
		return errors.Join(errors.New("raft did not stop; the log's disk seems to hang"), g.transport.Close())
	}
}

// makeDir makes the group's folder, durable with its parent.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(dir), 1)
}
