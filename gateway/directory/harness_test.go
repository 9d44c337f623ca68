package directory

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock stands still until it is advanced.
type fakeClock struct {
	mu      sync.Mutex
	changed *sync.Cond
	now     time.Time
	waits   map[*wait]bool
}

type wait struct {
	at time.Time
	c  chan time.Time
}

func newFakeClock() *fakeClock {
	c := &fakeClock{now: time.Unix(1_800_000_000, 0), waits: make(map[*wait]bool)}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &wait{c.now.Add(d), make(chan time.Time, 1)}
	c.waits[w] = true
	c.changed.Broadcast()
	return w.c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, w)
		c.changed.Broadcast()
	}
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for w := range c.waits {
		if !w.at.After(c.now) {
			delete(c.waits, w)
			w.c <- c.now
		}
	}
}

// awaitWaiter returns when somebody waits for the clock.
func (c *fakeClock) awaitWaiter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waits) == 0 {
		c.changed.Wait()
	}
}

// network knows who cannot reach whom.
type network struct {
	mu    sync.Mutex
	cut   map[string]bool // gateways that reach nobody and that nobody reaches
	ports map[string]string
	conns map[net.Conn][2]string
}

func (n *network) resolve(name string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if address, ok := n.ports[name]; ok {
		return address, nil
	}
	return "", errors.New("no such gateway")
}

func (n *network) dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, kind, address string) (net.Conn, error) {
		n.mu.Lock()
		to := ""
		for name, port := range n.ports {
			if port == address {
				to = name
			}
		}
		blocked := n.cut[from] || n.cut[to]
		n.mu.Unlock()
		if blocked {
			return nil, errors.New("the network is cut")
		}
		c, err := new(net.Dialer).DialContext(ctx, kind, address)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cut[from] || n.cut[to] {
			c.Close()
			return nil, errors.New("the network is cut")
		}
		n.conns[c] = [2]string{from, to}
		return c, nil
	}
}

func (n *network) isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[name] = true
	for c, ends := range n.conns {
		if ends[0] == name || ends[1] == name {
			c.Close()
			delete(n.conns, c)
		}
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// cluster is some gateways' directories over loopback TLS.
type cluster struct {
	t     *testing.T
	dir   string
	ca    *mtls.CA
	clock *fakeClock
	net   *network
	names []string
	rpc   func(name string, next http.RoundTripper) http.RoundTripper // nil, or put around each gateway's RPC
	up    map[string]*gatewayUp
}

type gatewayUp struct {
	*Directory
	stop func()
	pki  *mtls.PKI
}

func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	must(t, err)
	c := &cluster{t: t, dir: t.TempDir(), ca: ca, clock: newFakeClock(), names: names, up: make(map[string]*gatewayUp),
		net: &network{cut: make(map[string]bool), ports: make(map[string]string), conns: make(map[net.Conn][2]string)}}
	t.Cleanup(c.stopAll)
	return c
}

func (c *cluster) startAll() *cluster {
	c.t.Helper()
	for _, name := range c.names {
		c.start(name)
	}
	c.await(c.names...)
	return c
}

func (c *cluster) start(name string) {
	c.t.Helper()
	pki, err := c.ca.Issue(mtls.Gateway(name), time.Now(), time.Hour)
	must(c.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(c.t, err)
	c.net.mu.Lock()
	c.net.ports[name] = l.Addr().String()
	c.net.mu.Unlock()
	mux, err := raftfsm.NewMux(l, pki)
	must(c.t, err)
	transport, err := raftfsm.NewTransport(raftfsm.TransportConfig{Group: "directory", Name: name, Listener: mux.Raft("directory", name),
		PKI: pki, Resolve: c.net.resolve, Dial: c.net.dialer(name)})
	must(c.t, err)
	var voters []Voter
	for _, v := range c.names {
		voters = append(voters, Voter{ID: v, Address: v})
	}
	rpc := http.RoundTripper(NewRPC(pki, c.net.resolve, c.net.dialer(name)))
	idle := rpc.(*http.Transport)
	if c.rpc != nil {
		rpc = c.rpc(name, rpc)
	}
	d, err := Open(Config{Name: name, Dir: filepath.Join(c.dir, name), Voters: voters, Bootstrap: true, Transport: transport, RPC: rpc,
		Clock: c.clock, Renew: 20 * time.Millisecond, Hashing: Hashing{MemoryKiB: 64, Passes: 1},
		Timing: raftfsm.Timing{Heartbeat: 400 * time.Millisecond, Commit: 5 * time.Millisecond}})
	must(c.t, err)
	server := &http.Server{Handler: d.Handler(), ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(mux.HTTP()) }) // ends with the server
	serving.Go(func() { _ = mux.Serve() })
	c.up[name] = &gatewayUp{Directory: d, pki: pki, stop: func() {
		must(c.t, d.Close())
		must(c.t, server.Close())
		must(c.t, mux.Close())
		idle.CloseIdleConnections()
		serving.Wait()
	}}
}

func (c *cluster) stop(name string) {
	c.t.Helper()
	c.up[name].stop()
	delete(c.up, name)
}

func (c *cluster) stopAll() {
	for name := range c.up {
		c.stop(name)
	}
}

// await returns when each of the gateways holds a lease that began now.
func (c *cluster) await(names ...string) {
	c.t.Helper()
	ctx := c.context()
	for _, name := range names {
		for {
			err := c.up[name].Refresh(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				c.t.Fatalf("%s has no lease: %v", name, err)
			}
		}
	}
}

// leader returns the gateway that leads among those that are up and not cut, and
// the others of them.
func (c *cluster) leader() (string, []string) {
	c.t.Helper()
	for ctx := c.context(); ctx.Err() == nil; {
		leader := ""
		var rest []string
		for _, name := range c.names {
			c.net.mu.Lock()
			out := c.net.cut[name]
			c.net.mu.Unlock()
			switch {
			case c.up[name] == nil || out:
			case c.up[name].IsLeader():
				leader = name
			default:
				rest = append(rest, name)
			}
		}
		if leader != "" {
			return leader, rest
		}
	}
	c.t.Fatal("no leader")
	return "", nil
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantSlug(t *testing.T, err error, slug string) {
	t.Helper()
	if err == nil || fault.As(err).Slug != slug {
		t.Fatalf("got %v, want %s", err, slug)
	}
}

// people are the users of most tests, with a token each.
type people struct {
	at     *Directory
	tokens map[tenant.UserID]string
}

var root = ByOperator("root")

func (c *cluster) people(at *Directory, ids ...tenant.UserID) *people {
	c.t.Helper()
	p := &people{at, make(map[tenant.UserID]string)}
	for _, id := range ids {
		made, replayed, err := at.CreateUser(c.context(), root, nil, NewUser{ID: id, Email: string(id) + "@example.org", Name: string(id), Password: "password of " + string(id), WithToken: true})
		must(c.t, err)
		if replayed || made.User != id || made.Token == "" {
			c.t.Fatalf("made %+v, replayed %v", made, replayed)
		}
		p.tokens[id] = made.Token
	}
	_, err := at.PutCell(c.context(), root, nil, Cell{Name: "C2", Key: "k2", Region: "eu", Nodes: map[string]string{"n1": "127.0.0.1:1"}})
	must(c.t, err)
	return p
}

// tenant makes an active tenant with further members.
func (c *cluster) tenant(at *Directory, id tenant.ID, owner tenant.UserID, members ...tenant.UserID) tenant.Placement {
	c.t.Helper()
	p, _, err := at.CreateTenant(c.context(), root, nil, NewTenant{ID: id, Name: string(id), Owner: owner})
	must(c.t, err)
	must(c.t, at.ActivateTenant(c.context(), p.UID, p.Epoch))
	for _, m := range members {
		c.join(at, p.UID, owner, m, tenant.Member)
	}
	return p
}

func (c *cluster) join(at *Directory, uid tenant.UID, by, user tenant.UserID, role tenant.Role) Membership {
	c.t.Helper()
	invite, _, err := at.Invite(c.context(), ByUser(by), nil, uid, NewInvite{Email: string(user) + "@example.org", Role: role})
	must(c.t, err)
	m, _, err := at.AcceptInvite(c.context(), ByUser(user), nil, invite.Token)
	must(c.t, err)
	return m
}
