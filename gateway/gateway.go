package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"celld/gateway/directory"
	"celld/gateway/identity"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store/fault"
	"celld/store/tenant"
)

// Gateway is one running gateway.
type Gateway struct {
	cfg     Config
	metrics *metrics
	dir     *directory.Directory
	signer  *identity.Signer
	cells   *cells

	paths *paths[*Route]
	open  map[string]*Route // by method, space, path
	admin *paths[*operatorRoute]

	tenants              *gate[tenant.UID]
	users                *gate[tenant.UserID]
	shares               *gate[share] // of a user in a tenant
	logins, loginsByPeer *throttle
	requests             requestLog

	mux      *raftfsm.Mux
	rpc      *http.Transport
	servers  servers
	failed   chan error
	draining atomic.Bool

	stop func() // ends the gateway's own goroutines
	work sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

// servers are the three HTTP servers.
type servers struct{ public, admin, inner *http.Server }

// Open starts a gateway. It serves at once; it is ready when /readyz says so.
// On an error the listeners are still open, and the caller's.
func Open(cfg Config) (*Gateway, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, failed: make(chan error, 4), open: make(map[string]*Route)}
	var err error
	if g.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if g.signer, err = identity.NewSigner(cfg.Name, cfg.SigningKey, cfg.Clock); err != nil {
		return nil, err
	}
	g.tenants = newGate[tenant.UID]("tenant-requests", cfg.Limits.TenantRequests)
	g.users = newGate[tenant.UserID]("user-requests", cfg.Limits.UserRequests)
	g.shares = newGate[share]("tenant-requests-of-user", mostOf(cfg.Limits.TenantRequests))
	g.requests.slow, g.requests.well.rate, g.requests.refused.rate = cfg.RequestLog.Slow, int64(cfg.RequestLog.Rate), refusedLines
	g.logins = newThrottle("logins", cfg.Limits.Logins, 10*time.Second, cfg.Clock)
	g.loginsByPeer = newThrottle("logins-by-address", cfg.Limits.LoginsByPeer, time.Second, cfg.Clock)
	g.route()
	if err := g.openDirectory(); err != nil {
		return nil, err
	}
	g.cells = &cells{read: g.dir.Cell, local: cfg.Local, now: cfg.Clock, known: make(map[tenant.CellName]*cell),
		dial: func(cell, node, address string) caller {
			return dialNode(cfg.PKI, mtls.Node(cell, node), address)
		}}
	g.start()
	return g, nil
}

// route builds the tables that the front door looks requests up in.
func (g *Gateway) route() {
	var lines []*Route
	for _, line := range Routes() {
		if line.Target == Public {
			g.open[line.Method+" "+line.Pattern] = &line
		}
		lines = append(lines, &line)
	}
	g.paths = newPaths(lines, func(r *Route) (string, string) { return r.Method, r.Pattern })
	var operators []*operatorRoute
	for _, line := range operatorRoutes() {
		operators = append(operators, &line)
	}
	g.admin = newPaths(operators, func(r *operatorRoute) (string, string) { return r.method, r.pattern })
}

func (g *Gateway) openDirectory() error {
	resolve := func(name string) (string, error) {
		address, ok := g.cfg.Group.Peers[name]
		if !ok {
			return "", fmt.Errorf("gateway %s has no address in the configuration", name)
		}
		return address, nil
	}
	var err error
	if g.mux, err = raftfsm.NewMux(g.cfg.Inner, g.cfg.PKI); err != nil {
		return err
	}
	transport, err := raftfsm.NewTransport(raftfsm.TransportConfig{Group: mtls.Directory, Name: g.cfg.Name, Listener: g.mux.Raft(mtls.Directory, g.cfg.Name),
		PKI: g.cfg.PKI, Resolve: resolve, Logger: g.cfg.Logger})
	if err != nil {
		return errors.Join(err, g.mux.Close())
	}
	g.rpc = directory.NewRPC(g.cfg.PKI, resolve, nil)
	group := g.cfg.Group
	g.dir, err = directory.Open(directory.Config{Name: g.cfg.Name, ServerID: group.ServerID, Dir: g.cfg.Dir, Voters: group.Voters, Bootstrap: group.Bootstrap,
		Transport: transport, RPC: g.rpc, Logger: g.cfg.Logger, Metrics: g.cfg.Metrics, Timing: group.Timing, Limits: group.Limits, Room: g.cfg.Room})
	if err != nil {
		return errors.Join(err, transport.Close(), g.mux.Close())
	}
	return nil
}

// Bounds of time on connections from outside.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 2 * time.Minute
)

func (g *Gateway) server(h http.HandlerFunc) *http.Server {
	return &http.Server{Handler: lastIfChunked(h), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: hardHeaders, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug)}
}

// lastIfChunked lets nothing follow a chunked request on its connection: net/http
// drops a Content-Length that came with it without a word, and a proxy in front that
// went by that length takes the rest for another request (RFC 9112, section 6.3).
func lastIfChunked(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h(w, r)
	}
}

// start starts what Close waits for: the mux, three servers, the resumer and the
// watch over the directory.
func (g *Gateway) start() {
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.servers = servers{public: g.server(g.servePublic), admin: g.server(g.serveOperator), inner: g.server(g.dir.Handler().ServeHTTP)}
	g.servers.public.TLSConfig = g.cfg.TLS
	g.run("inner mux", g.mux.Serve)
	g.run("inner server", func() error { return g.servers.inner.Serve(g.mux.HTTP()) })
	g.run("operator API", func() error { return g.servers.admin.Serve(g.cfg.Admin) })
	g.run("public API", func() error {
		if g.cfg.TLS != nil {
			return g.servers.public.ServeTLS(g.cfg.Public, "", "")
		}
		return g.servers.public.Serve(g.cfg.Public)
	})
	g.work.Go(func() { g.resume(ctx) })
	g.work.Go(func() {
		select {
		case <-ctx.Done():
		case err, ok := <-g.dir.Failed():
			if ok {
				g.fail(fmt.Errorf("directory: %w", err))
			}
		}
	})
}

func (g *Gateway) run(what string, serve func() error) {
	g.work.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) && !g.draining.Load() {
			g.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

func (g *Gateway) fail(err error) {
	select {
	case g.failed <- err:
	default: // one is enough
	}
}

// Failed delivers the error after which the gateway is of no use; its owner
// closes it and ends the process.
func (g *Gateway) Failed() <-chan error { return g.failed }

// Key is the public half of the key that contexts are signed with.
func (g *Gateway) Key() identity.Key { return g.signer.Key() }

// Directory is the gateway's replica.
func (g *Gateway) Directory() *directory.Directory { return g.dir }

// Close stops in this order: /readyz says no; the public and the operator API
// take no new requests and finish those under way, for at most Limits.Drain; the
// resumer ends; the directory hands leadership over and closes; the inner port
// closes; the connections to cells close. Every goroutine has ended when it
// returns.
func (g *Gateway) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Gateway) close() error {
	g.draining.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Limits.Drain)
	defer cancel()
	var drains sync.WaitGroup
	for _, s := range []*http.Server{g.servers.public, g.servers.admin} {
		drains.Go(func() { shutDown(ctx, s) })
	}
	drains.Wait()
	g.stop()
	err := g.dir.Close()
	_ = g.servers.inner.Close() // its listener is closed by the mux
	if closing := g.mux.Close(); closing != nil && !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	g.rpc.CloseIdleConnections()
	g.cells.close()
	g.work.Wait()
	return err
}

// shutDown drains a server, and cuts off what takes longer than ctx.
func shutDown(ctx context.Context, s *http.Server) {
	if s.Shutdown(ctx) != nil {
		_ = s.Close() // an error of closing a listener that is closed
	}
}

func (g *Gateway) health(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, statusJSON{Status: "ok"})
}

func (g *Gateway) ready(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	if err := g.whyNotReady(); err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, statusJSON{Status: "ready"})
}

type statusJSON struct {
	Status string `json:"status"`
}

// whyNotReady is nil when the gateway can serve.
func (g *Gateway) whyNotReady() error {
	switch {
	case g.draining.Load():
		return notReady("the gateway is stopping")
	case !g.dir.Ready():
		return notReady("the directory is not caught up or has no leader")
	case g.cfg.Ready != nil:
		if err := g.cfg.Ready(); err != nil {
			return notReady(strings.TrimSpace(err.Error()))
		}
	}
	return nil
}

func notReady(why string) error {
	return fault.New(fault.Unavailable, "not-ready", "%s", why).After(time.Second)
}
