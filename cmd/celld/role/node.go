package role

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"celld/cmd/celld/settings"
	"celld/gateway/identity"
	"celld/node"
	"celld/node/fetch"
	"celld/raftfsm/mtls"
	"celld/store/room"
	"celld/store/tenant"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// RunningNode is a node with what belongs to it in this process.
type RunningNode struct {
	*node.Node
	metrics  *http.Server // nil for none
	serving  sync.WaitGroup
	profiles profiles
	tracked  *tracked
	room     *room.Room
	unwatch  func() // of the certificate; nil for nothing
}

// Node starts a node of checked settings. It waits for disk space, until ctx ends.
func Node(ctx context.Context, s settings.Node, o Options) (_ *RunningNode, err error) {
	cfg := node.Config{
		Cell: tenant.CellName(s.Cell), Name: s.Name, Region: s.Region, Dir: s.Data, Peers: s.Nodes, Bootstrap: o.Init && !s.Join, Join: s.Join,
		Descriptors: o.Descriptors, Slots: o.Slots, Timing: timing(s.Common), Limits: limits(s.Common), Logger: o.Logger, Clock: o.Clock,
		DigestEvery: time.Duration(s.DigestEvery), DigestRate: int64(s.DigestRate) << 20,
		Fetch:     fetch.Limits{BytesPerSecond: int64(s.FetchRate) << 20},
		Retention: node.Retention{Keys: time.Duration(s.KeepKeys), Audit: time.Duration(s.KeepAudit)},
	}
	if cfg.CacheBytes = int64(s.CacheMib) << 20 / int64(max(o.Nodes, 1)); s.CacheMib == 0 {
		cfg.CacheBytes = -1
	}
	if cfg.PKI, err = mtls.LoadDir(s.Identity); err != nil {
		return nil, fmt.Errorf("--identity: %w", err)
	}
	for _, name := range sorted(s.ContextKeys) {
		public, err := settings.ContextPublic(s.ContextKeys[name])
		if err != nil {
			return nil, fmt.Errorf("--context-keys: %w", err)
		}
		cfg.ContextKeys = append(cfg.ContextKeys, identity.Key{Gateway: name, Public: public})
	}
	registry := o.Metrics
	if registry == nil {
		registry = NewRegistry()
	}
	n := &RunningNode{tracked: &tracked{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"cell": s.Cell, "node": s.Name}, registry)}}
	cfg.Metrics = n.tracked
	defer func() {
		if err != nil {
			if n.unwatch != nil {
				n.unwatch()
			}
			n.room.Close()
			n.tracked.forget()
		}
	}()
	if n.unwatch, err = cfg.PKI.Watch(o.Logger, cfg.Metrics, time.Now); err != nil {
		return nil, err
	}
	if n.room, err = openRoom(ctx, s.Common, s.Cell+"/"+s.Name, o.Logger, cfg.Metrics); err != nil {
		return nil, err
	}
	cfg.Room = n.room
	var open listeners
	if cfg.Listener, err = open.open("inner", s.Inner); err != nil {
		return nil, err
	}
	var metrics net.Listener
	if s.Metrics != "" {
		if metrics, err = open.open("metrics", s.Metrics); err != nil {
			return nil, errors.Join(err, open.close())
		}
	}
	profiles, err := n.profiles.open(&open, s.Pprof)
	if err != nil {
		return nil, errors.Join(err, open.close())
	}
	if n.Node, err = node.Open(ctx, cfg); err != nil {
		return nil, errors.Join(err, open.close())
	}
	n.profiles.serve(profiles, o.Logger)
	if metrics != nil {
		n.serveMetrics(metrics, registry, o)
	}
	return n, nil
}

// serveMetrics answers those who watch this process.
func (n *RunningNode) serveMetrics(l net.Listener, registry *prometheus.Registry, o Options) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !n.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	n.metrics = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	n.serving.Go(func() {
		if err := n.metrics.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("the metrics server ended", "error", err)
		}
	})
}

// Close stops the node in its order, its metrics last.
func (n *RunningNode) Close(ctx context.Context) error {
	err := errors.Join(n.Node.Close(ctx), n.profiles.close())
	if n.metrics != nil {
		err = errors.Join(err, n.metrics.Close())
		n.serving.Wait()
	}
	n.unwatch()
	n.room.Close()
	n.tracked.forget()
	return err
}

// tracked is a registerer that can take back what was registered with it: a node
// may live several times in one process.
type tracked struct {
	prometheus.Registerer

	mu  sync.Mutex
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (t *tracked) Register(c prometheus.Collector) error {
	if err := t.Registerer.Register(c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (t *tracked) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := t.Register(c); err != nil {
			panic(err)
		}
	}
}

func (t *tracked) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		t.Unregister(c)
	}
	t.all = nil
}
