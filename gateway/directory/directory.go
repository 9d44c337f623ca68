package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/raftfsm/verify"
	"celld/store/tenant"
)

// group is what a Directory needs of its Raft group.
type group interface {
	Propose(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error)
	ReadIndex(ctx context.Context) (uint64, error)
	WaitApplied(ctx context.Context, index uint64) error
	Applied() uint64
	Term() uint64
	IsLeader() bool
	Leader() (id, name string, ok bool)
	Servers() ([]raftfsm.Member, error)
	Ready() bool
	Transfer(ctx context.Context) error
	Failed() <-chan error
	Close() error
}

// Directory is one gateway's replica of the directory. Its methods may be called
// from any goroutine.
type Directory struct {
	cfg     Config
	log     *slog.Logger
	clock   Clock
	space   *dirfsm.Space
	group   group
	hasher  *hasher
	digests *verify.Verifier
	metrics *metrics

	credentials *otter.Cache[secretHash, remembered[Session]]
	access      *otter.Cache[accessKey, remembered[Access]]
	cells       *otter.Cache[tenant.CellName, remembered[Cell]]

	lease      atomic.Pointer[time.Time] // when the last granted read index was asked for
	leadership leadership
	callSlots  chan struct{} // inner calls being served

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	work   sync.WaitGroup // the loops, renewals and inner calls being served

	mu      sync.Mutex // guards what follows
	closing bool
	running *renewal
	next    *renewal
}

// Bounds of what is remembered, in entries.
const (
	maxCredentials = 50_000
	maxAccess      = 100_000
	maxCellsKept   = 1_000
	maxCalls       = 256
)

// Open opens the replica and joins the group. It serves once Ready says so. The
// caller lets Handler be reached before or soon after.
func Open(cfg Config) (*Directory, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	space, err := dirfsm.OpenSpace(cfg.Dir)
	if err != nil {
		return nil, errors.Join(err, cfg.Transport.Close())
	}
	digests, ask := newVerifier(&cfg, space)
	g, err := raftfsm.Open(raftfsm.Config{
		ID: cfg.ServerID, Group: groupName, Dir: filepath.Join(cfg.Dir, "raft"),
		Voters: cfg.Voters, Bootstrap: cfg.Bootstrap,
		Table: dirfsm.Table(space.Touch, digests.Look), Guard: dirfsm.Guard, Space: space, Transport: cfg.Transport,
		Logger: cfg.Logger, Metrics: cfg.Metrics, Timing: cfg.Timing, Limits: cfg.Limits, Clock: cfg.Clock.Now,
		Room: cfg.Room, HasRoom: cfg.hasRoom,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the directory's group: %w", err), space.Close())
	}
	d, err := newDirectory(cfg, space, g)
	if err != nil {
		return nil, errors.Join(err, g.Close(), space.Close())
	}
	ask(d)
	if err := d.startDigests(digests); err != nil {
		return nil, errors.Join(err, g.Close(), space.Close())
	}
	d.start()
	return d, nil
}

// groupName is the directory's Raft group.
const groupName = "directory"

func newDirectory(cfg Config, space *dirfsm.Space, g group) (*Directory, error) {
	m, err := newMetrics(cfg.Metrics, cfg.Name)
	if err != nil {
		return nil, err
	}
	d := &Directory{
		cfg: cfg, log: cfg.Logger, clock: cfg.Clock, space: space, group: g, hasher: newHasher(cfg.Hashing), metrics: m,
		credentials: newCache[secretHash, Session](maxCredentials),
		access:      newCache[accessKey, Access](maxAccess),
		cells:       newCache[tenant.CellName, Cell](maxCellsKept),
		callSlots:   make(chan struct{}, maxCalls),
	}
	d.leadership.leases = make(map[string]time.Time)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

func (d *Directory) start() {
	d.work.Go(d.renewLoop)
	d.work.Go(d.tidyLoop)
}

// begin notes a piece of work that Close waits for.
func (d *Directory) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	d.work.Add(1)
	return true
}

// handOver is how long Close lets leadership go to another gateway.
const handOver = 2 * time.Second

// Close stops in this order: leadership is handed over, no inner call is
// accepted any more, the loops and calls under way end, the group leaves Raft
// with its transport, the file is closed. The caller has drained its own users
// before.
func (d *Directory) Close() error {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		d.work.Wait()
		return nil
	}
	d.mu.Unlock()
	if members, err := d.group.Servers(); err == nil && len(members) > 1 && d.group.IsLeader() {
		ctx, cancel := context.WithTimeout(d.ctx, handOver)
		if err := d.group.Transfer(ctx); err != nil {
			d.log.Warn("leadership was not handed over", "node", d.cfg.Name, "error", err)
		}
		cancel()
	}
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
	if d.digests != nil {
		d.digests.Close()
	}
	err := d.group.Close()
	err = errors.Join(err, d.space.Close())
	if idle, ok := d.cfg.RPC.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
	d.metrics.unregister()
	return err
}

// Failed delivers the error after which this replica applies nothing more; its
// owner closes it and ends the process.
func (d *Directory) Failed() <-chan error { return d.group.Failed() }

// Ready reports whether the replica has caught up since it started and holds a
// lease.
func (d *Directory) Ready() bool { return d.group.Ready() && d.Fresh() == nil }

// IsLeader reports whether this gateway leads the directory, as far as it knows.
func (d *Directory) IsLeader() bool { return d.group.IsLeader() }

// Leader is the name of the gateway that leads, if one is known.
func (d *Directory) Leader() (string, bool) {
	_, name, ok := d.group.Leader()
	return name, ok
}

// Applied is the last entry of the directory's log that was applied here.
func (d *Directory) Applied() uint64 { return d.group.Applied() }

// Name is this gateway's name.
func (d *Directory) Name() string { return d.cfg.Name }

// Digest is over the content of this replica; equal replicas have equal ones.
func (d *Directory) Digest(ctx context.Context) (sum [32]byte, applied uint64, err error) {
	sum, at, err := d.space.Digest(ctx)
	return sum, at.Applied, err
}

// remembered is a row that was read when the file had a sequence. It is right
// for as long as the space holds that sequence, whatever order fills and
// removals came in: one that lost the race carries the older sequence and is
// never served.
type remembered[V any] struct {
	sequence uint64
	value    V
}

func newCache[K comparable, V any](most int) *otter.Cache[K, remembered[V]] {
	return otter.Must(&otter.Options[K, remembered[V]]{
		MaximumSize: most,
		Executor:    func(fn func()) { fn() }, // no goroutines of the cache's own
	})
}

var _ http.Handler = (*inner)(nil)
