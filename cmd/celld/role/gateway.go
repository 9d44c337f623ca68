package role

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"celld/cmd/celld/settings"
	"celld/gateway"
	"celld/gateway/directory"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store"
	"celld/store/room"
)

// Options is what a role is told beside its settings.
type Options struct {
	Init   bool // form the group
	Logger *slog.Logger
	// Local are nodes in this process by logical name, which a gateway calls
	// directly.
	Local map[string]http.Handler
	// Nodes is how many nodes share the process, and so its memory; 0 means one.
	Nodes int
	// Slots and Descriptors are shared by the nodes of a process; nil for a node's
	// own.
	Slots       *store.Slots
	Descriptors *store.Descriptors
	// Metrics is the registry that the roles of a process share; nil for one of
	// the role's own.
	Metrics *prometheus.Registry
	// Clock stamps a node's commands and dates its contexts; nil for time.Now.
	Clock func() time.Time
}

// listeners are opened together and closed together.
type listeners []net.Listener

func (ls *listeners) open(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; is another process listening there?", flag, err)
	}
	*ls = append(*ls, l)
	return l, nil
}

func (ls listeners) close() error {
	var err error
	for _, l := range ls {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) { // whoever was given it may have closed it
			err = errors.Join(err, e)
		}
	}
	return err
}

func timing(c settings.Common) raftfsm.Timing {
	return raftfsm.Timing{Heartbeat: time.Duration(c.Election), Election: time.Duration(c.Election), Lease: time.Duration(c.Election)}
}

// limits are those of the settings; what they leave out is raftfsm's default.
func limits(c settings.Common) raftfsm.Limits {
	return raftfsm.Limits{SnapshotEntries: uint64(max(c.LogEntries, 0)), SnapshotBytes: int64(c.LogBytes), SnapshotAge: time.Duration(c.LogAge)}
}

// RunningGateway is a gateway with a stop like a node's.
type RunningGateway struct {
	*gateway.Gateway
	profiles profiles
	room     *room.Room
	unwatch  func() // of the certificate
}

// Close stops the gateway in its order. It bounds itself by the settings and does
// not heed ctx.
func (g *RunningGateway) Close(context.Context) error {
	defer g.room.Close()
	defer g.unwatch()
	return errors.Join(g.Gateway.Close(), g.profiles.close())
}

// Gateway starts a gateway of checked settings. It waits for disk space, until ctx
// ends.
func Gateway(ctx context.Context, s settings.Gateway, o Options) (_ *RunningGateway, err error) {
	cfg := gateway.Config{
		Name: s.Name, Dir: s.Data, Local: o.Local, StaleReads: s.StaleReads, Logger: o.Logger, Metrics: gatewayMetrics(o.Metrics),
		Group: gateway.Group{Peers: s.Gateways, Bootstrap: o.Init, Timing: timing(s.Common), Limits: limits(s.Common)},
	}
	cfg.RequestLog.Rate, cfg.RequestLog.Slow = s.RequestLog, time.Duration(s.SlowRequest)
	if s.RequestLog == 0 {
		cfg.RequestLog.Rate = -1
	}
	// What is left of the time is for the directory to hand leadership over.
	cfg.Limits.Drain = time.Duration(s.StopWithin) / 2
	for _, name := range sorted(s.Gateways) {
		cfg.Group.Voters = append(cfg.Group.Voters, directory.Voter{ID: name, Address: name})
	}
	if s.ReadyFile != "" {
		cfg.Ready = func() error { return exists(s.ReadyFile) }
	}
	if cfg.PKI, err = mtls.LoadDir(s.Identity); err != nil {
		return nil, fmt.Errorf("--identity: %w", err)
	}
	if cfg.SigningKey, err = settings.ContextKey(filepath.Join(s.Identity, settings.ContextKeyFile)); err != nil {
		return nil, fmt.Errorf("--identity: %w", err)
	}
	if cfg.OperatorToken, err = settings.Secret(s.OperatorTokenFile); err != nil {
		return nil, fmt.Errorf("--operator-token-file: %w", err)
	}
	if s.HTTPCert != "" {
		cert, err := tls.LoadX509KeyPair(s.HTTPCert, s.HTTPKey)
		if err != nil {
			return nil, fmt.Errorf("--http-cert: %w", err)
		}
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	unwatch, err := cfg.PKI.Watch(o.Logger, cfg.Metrics, time.Now)
	if err != nil {
		return nil, err
	}
	if cfg.Room, err = openRoom(ctx, s.Common, mtls.Gateway(s.Name), o.Logger, cfg.Metrics); err != nil {
		unwatch()
		return nil, err
	}
	var open listeners
	defer func() {
		if err != nil {
			err = errors.Join(err, open.close())
			cfg.Room.Close()
			unwatch()
		}
	}()
	if cfg.Public, err = open.open("http", s.HTTP); err != nil {
		return nil, err
	}
	if cfg.Admin, err = open.open("admin", s.Admin); err != nil {
		return nil, err
	}
	if cfg.Inner, err = open.open("inner", s.Inner); err != nil {
		return nil, err
	}
	g := &RunningGateway{room: cfg.Room, unwatch: unwatch}
	profiles, err := g.profiles.open(&open, s.Pprof)
	if err != nil {
		return nil, err
	}
	if g.Gateway, err = gateway.Open(cfg); err != nil {
		return nil, err
	}
	g.profiles.serve(profiles, o.Logger)
	return g, nil
}

// gatewayMetrics has a gateway register for itself and answer for its process.
func gatewayMetrics(shared *prometheus.Registry) gateway.Metrics {
	own := prometheus.NewRegistry()
	if shared == nil {
		shared = NewRegistry()
	}
	return struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{own, prometheus.Gatherers{own, shared}}
}

// NewRegistry makes a process's registry, which tells about the process itself.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func exists(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("whoever started this gateway has not released it yet")
	}
	return err
}
