package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/node/api"
	"celld/node/fetch"
	"celld/node/records"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/mtls"
	"celld/raftfsm/verify"
	"celld/store"
	"celld/store/fault"
	"celld/store/room"
	"celld/store/stall"
	"celld/store/tenant"
)

const (
	// drainTime bounds how long a stop waits for requests under way.
	drainTime = 3 * time.Second
	// transferTime bounds how long it takes to hand leadership over.
	transferTime = 3 * time.Second
	// flushTime bounds how long answers that are written take to go out.
	flushTime = time.Second
	// lookAgain is how often a new cell's nodes look for the cell's key.
	lookAgain = 50 * time.Millisecond
)

// Node is a running node. Its methods may be called from any goroutine.
type Node struct {
	cfg      Config
	space    *cellfsm.Space
	disk     *stall.Watch
	mux      *raftfsm.Mux
	group    *raftfsm.Group
	digests  *verify.Verifier
	looker   *looker
	pruned   prometheus.Counter
	gate     *gate
	fetcher  *fetch.Fetcher
	clients  peerClients
	http     *http.Server
	hop      *hop.Server                       // for gateways
	verifier atomic.Pointer[identity.Verifier] // nil until the cell has its key

	failed  chan error
	hangs   chan struct{} // closed when the disk does: nothing that uses it ends any more
	hanging sync.Once
	hang    *stall.Error            // valid after hangs
	cancel  context.CancelCauseFunc // of the node's own goroutines
	running sync.WaitGroup
	closing sync.Once
	closed  error
}

var errClosing = errors.New("the node is stopping")

// Open starts a node. It takes the listener over in any case.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	n, err := open(cfg)
	if err != nil {
		if cfg.Listener != nil {
			err = errors.Join(err, ignoreClosed(cfg.Listener.Close()))
		}
		return nil, err
	}
	if cfg.Join && n.group.LastIndex() == 0 {
		n.cfg.Logger.Info("this node is in no cell yet and waits to be added with celld admin cell add-node", "server_id", n.group.ID())
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	n.cancel = cancel
	n.running.Go(func() { n.serve("inner port", n.mux.Serve()) })
	n.running.Go(func() { n.serve("inner HTTP", n.http.Serve(n.mux.HTTP())) })
	gateways := n.mux.Listen(hop.Protocol, isGateway)
	n.running.Go(func() { n.serve("hop from gateways", n.hop.Serve(gateways)) })
	n.running.Go(func() { n.watch(own) })
	n.running.Go(func() { n.fetcher.Run(own) })
	n.running.Go(func() { n.sweep(own) })
	n.running.Go(func() {
		if err := n.tend(own); err != nil {
			n.fail(err)
		}
	})
	n.running.Go(func() {
		if err := n.initialise(own); err != nil && own.Err() == nil {
			n.fail(err)
		}
	})
	return n, nil
}

func open(cfg Config) (_ *Node, err error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	disk, err := stall.New(stall.Config{
		Limit: cfg.Timing.Stall, Member: string(cfg.Cell) + "/" + cfg.Name, Metrics: cfg.Metrics, Reached: cfg.DiskCall,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			disk.Close()
		}
	}()
	slots := cfg.Slots
	if slots == nil {
		slots = store.NewSlots()
	}
	space, err := cellfsm.OpenSpace(cfg.Dir, cfg.MaxOpen, cfg.Descriptors, slots, cfg.Logger)
	if err != nil {
		return nil, err
	}
	cache, err := records.New(max(cfg.CacheBytes, 0), cfg.Metrics)
	if err != nil {
		return nil, errors.Join(err, space.Close())
	}
	if cache != nil {
		space.Watch(cache)
	}
	n := &Node{
		cfg: cfg, space: space, disk: disk, looker: newLooker(cfg.PKI, cfg.resolve), failed: make(chan error, 1), hangs: make(chan struct{}),
	}
	n.digests = n.newVerifier()
	n.pruned = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "celld", Subsystem: "cell", Name: "pruned_rows_total", Help: "Rows past their retention that this node had deleted while it led.",
	})
	space.OnMark(n.digests.Look)
	space.KeepRoom(cfg.Room)
	space.WatchDisk(disk)
	if n.mux, err = raftfsm.NewMux(cfg.Listener, cfg.PKI); err != nil {
		return nil, errors.Join(err, space.Close())
	}
	if n.group, err = n.openGroup(); err != nil {
		return nil, errors.Join(err, ignoreClosed(n.mux.Close()), space.Close())
	}
	if err = n.digests.Start(n.group); err != nil {
		return nil, errors.Join(err, n.group.Close(), ignoreClosed(n.mux.Close()), space.Close())
	}
	server := api.New(api.Config{
		Cell: cfg.Cell, Node: cfg.Name, Log: n.group, Space: space, Digests: n.digests, Verifier: n.verifier.Load,
		Ready: n.Ready, Leader: n.leader, Status: n.Status, Members: members{n}, Records: cache, Logger: cfg.Logger, Metrics: cfg.Metrics,
	})
	n.gate = newGate(server)
	n.hop = hop.NewServer(n.gate, cfg.Logger)
	files := fetch.NewServer(fetch.ServerConfig{Cell: cfg.Cell, Space: space, Applied: n.group.Applied, Limits: cfg.Fetch, Logger: cfg.Logger})
	n.fetcher = fetch.New(fetch.Config{
		Space: space, Group: n.group, Peers: n.filePeers, Room: cfg.Room, Limits: cfg.Fetch, Logger: cfg.Logger, Metrics: cfg.Metrics,
	})
	n.http = &http.Server{
		Handler: api.RequirePeer(cfg.Cell, beside(files, n.gate)), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(n.pruned, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "celld", Subsystem: "cell", Name: "open_tenants", Help: "Tenants' files that are open.",
		}, func() float64 { return float64(space.Open()) }))
	}
	return n, nil
}

// isGateway says who gets requests in over the hop. Other nodes ask by HTTP, where
// api.RequirePeer says what they get.
func isGateway(identity string) bool {
	id, err := mtls.Parse(identity)
	return err == nil && id.Gateway()
}

func (n *Node) openGroup() (*raftfsm.Group, error) {
	cell, dir := string(n.cfg.Cell), filepath.Join(n.cfg.Dir, "raft")
	id, err := raftfsm.Identify(dir, cell, n.cfg.Name, n.cfg.Join, n.cfg.replace())
	if err != nil {
		return nil, err
	}
	logical := n.cfg.full(id)
	transport, err := raftfsm.NewTransport(raftfsm.TransportConfig{
		Group: cell, Name: logical, Listener: n.mux.Raft(cell, logical),
		PKI: n.cfg.PKI, Resolve: n.cfg.resolve, Logger: n.cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	group, err := raftfsm.Open(raftfsm.Config{
		ID: id, Group: cell, Dir: dir,
		Voters: n.cfg.voters(), Bootstrap: n.cfg.Bootstrap,
		Table: cellfsm.Commands(n.space), Guard: n.space.Guard, Space: n.space, Transport: transport,
		Logger: n.cfg.Logger, Metrics: n.cfg.Metrics, Timing: n.cfg.Timing, Limits: n.cfg.Limits, Clock: n.cfg.Clock,
		Room: n.cfg.Room, HasRoom: n.hasRoom, Replace: n.cfg.replace(),
	})
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	return group, nil
}

// serve reports how a server ended, unless that was Close's doing.
func (n *Node) serve(what string, err error) {
	if ignoreClosed(err) != nil {
		n.fail(fmt.Errorf("%s: %w", what, err))
	}
}

func (n *Node) watch(ctx context.Context) {
	select {
	case err := <-n.group.Failed():
		n.fail(err)
	case err := <-n.space.Failed():
		n.fail(err)
	case <-n.disk.Hangs():
		n.giveUp(n.disk.Err())
	case <-ctx.Done():
	}
}

// fail reports what makes it impossible to go on; the first report counts.
func (n *Node) fail(err error) {
	var hang *stall.Error
	if errors.As(err, &hang) {
		n.hanging.Do(func() { n.hang = hang; close(n.hangs) })
	}
	select {
	case n.failed <- err:
	default:
	}
}

// ignoreClosed drops the errors that say that something was closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Failed delivers the error with which the node can't go on. Its owner calls
// Close and ends the process.
func (n *Node) Failed() <-chan error { return n.failed }

// initialise returns when the cell has its name and key. The first leader gives
// them; everybody else meets them in the log.
func (n *Node) initialise(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		cell, found, err := n.space.Cell()
		if err != nil {
			return err
		}
		if found {
			return n.adopt(cell)
		}
		if n.group.IsLeader() {
			if err := n.propose(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (n *Node) propose(ctx context.Context) error {
	cmd, err := raftfsm.NewCommand(cellfsm.InitCellNumber, "", cellfsm.InitCell{Name: n.cfg.Cell, Key: tenant.CellKey(rand.Text())})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	if _, err := n.group.Propose(ctx, cmd); err != nil {
		if fault.Of(err) == fault.Unavailable { // somebody else's turn
			n.cfg.Logger.Debug("cell not initialised yet", "error", err)
			return nil
		}
		return fmt.Errorf("initialise the cell: %w", err)
	}
	return nil
}

func (n *Node) adopt(cell cellfsm.Cell) error {
	if cell.Name != n.cfg.Cell {
		return fmt.Errorf("the data below %s belongs to the cell %s, not to %s", n.cfg.Dir, cell.Name, n.cfg.Cell)
	}
	if cell.FeatureLevel > cellfsm.FeatureLevel {
		return fmt.Errorf("the cell is at feature level %d, this program knows %d: run the newer program", cell.FeatureLevel, cellfsm.FeatureLevel)
	}
	v, err := identity.NewVerifier(cell.Name, cell.Key, n.cfg.ContextKeys, n.cfg.Clock)
	if err != nil {
		return err
	}
	n.verifier.Store(v)
	return nil
}

// Handler is what the inner port serves to gateways, for a gateway in the same
// process. It asks for the same signed context.
func (n *Node) Handler() http.Handler { return n.gate }

// Ready reports whether the node may answer tenants.
func (n *Node) Ready() bool { return n.verifier.Load() != nil && n.group.Ready() }

func (n *Node) leader() (string, bool) {
	_, full, ok := n.group.Leader()
	if !ok {
		return "", false
	}
	return short(full), n.group.IsLeader()
}

// Status is what the node says about itself.
func (n *Node) Status() (api.Status, error) {
	s := api.Status{
		Cell: string(n.cfg.Cell), Node: n.cfg.Name, Region: n.cfg.Region, Term: n.group.Term(), Applied: n.group.Applied(),
		Ready: n.Ready(), OpenTenants: n.space.Open(), Members: []api.Member{},
	}
	s.Leader, s.IsLeader = n.leader()
	s.DiskFree, s.DiskReserve = n.cfg.Room.Free()
	s.HasRoom = n.cfg.Room.Level() == room.Ample
	if s.DiskHangs = n.diskHangs(); s.DiskHangs {
		s.Ready = false
		return s, nil // the rest is on the disk
	}
	key, err := n.space.Key()
	if err != nil {
		return s, err
	}
	s.CellKey = string(key)
	if s.Tenants, err = n.space.Count(); err != nil {
		return s, err
	}
	s.ServerID, s.LastIndex, s.Absent = n.group.ID(), n.group.LastIndex(), n.space.Absent()
	at, err := n.group.Membership()
	if err != nil {
		return s, err
	}
	s.MembersIndex, s.MembersCommitted = at.Index, at.Committed
	for _, m := range at.Members {
		s.Members = append(s.Members, api.Member{ID: m.ID, Node: short(m.Name), Address: m.Address, Voter: m.Voter})
	}
	return s, nil
}

// Space is the node's files, for what runs beside its handlers.
func (n *Node) Space() *cellfsm.Space { return n.space }

// Group is the node's member of the cell's group.
func (n *Node) Group() *raftfsm.Group { return n.group }

// Close stops the node in the order that the package's documentation gives, and
// returns when nothing of it runs any more. ctx bounds the polite part.
func (n *Node) Close(ctx context.Context) error {
	n.closing.Do(func() { n.closed = n.closeOrLeave(ctx) })
	return n.closed
}

func (n *Node) close(ctx context.Context) error {
	log := n.cfg.Logger
	drain, cancel := context.WithTimeout(ctx, drainTime)
	if err := n.gate.drain(drain); err != nil {
		log.Warn("requests under way were cut off", "error", err)
	}
	cancel()
	if n.group.IsLeader() && ctx.Err() == nil {
		transfer, cancel := context.WithTimeout(ctx, transferTime)
		if err := n.group.Transfer(transfer); err != nil {
			log.Info("leadership was not handed over", "error", err)
		}
		cancel()
	}
	n.cancel(errClosing)
	flush, cancel := context.WithTimeout(ctx, flushTime)
	if err := n.hop.Shutdown(flush); err != nil { // what handlers have written goes out
		log.Warn("answers to gateways were cut off", "error", err)
	}
	err := n.http.Shutdown(flush)
	cancel()
	if err != nil {
		err = n.http.Close()
	}
	n.digests.Close()
	n.looker.close()
	err = errors.Join(err, n.group.Close(), ignoreClosed(n.mux.Close()))
	n.running.Wait()
	n.clients.close()
	err = errors.Join(err, n.space.Close())
	n.disk.Close()
	return err
}
