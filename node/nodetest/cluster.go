package nodetest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"celld/gateway/identity"
	"celld/node"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store/tenant"
)

// Patience bounds how long anything here is waited for.
const Patience = 30 * time.Second

// Clock is a clock that a test may move. It starts at the real time.
type Clock struct {
	mu     sync.Mutex
	frozen time.Time
}

// Now is the time: the real one until Freeze.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen.IsZero() {
		return time.Now()
	}
	return c.frozen
}

// Freeze stops the clock where it is, ahead of it by d, or behind.
func (c *Clock) Freeze(d time.Duration) {
	now := c.Now().Add(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = now
}

// Run lets the clock run again.
func (c *Clock) Run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = time.Time{}
}

// Cluster is a running cell.
type Cluster struct {
	t       testing.TB
	Cell    tenant.CellName
	Clock   *Clock // stamps commands and dates contexts
	Signer  *identity.Signer
	gateway *mtls.PKI
	ca      *mtls.CA
	dir     string
	change  func(*node.Config)
	formed  map[string]string // addresses of the nodes that formed the cell: what settings name

	mu      sync.Mutex
	addrs   map[string]string // of all nodes
	nodes   map[string]*node.Node
	clients map[string]*http.Client
	leader  string // the last one that answered
}

// New starts a cell of three nodes and waits until it has a leader and a key.
func New(t testing.TB, cell tenant.CellName) *Cluster {
	t.Helper()
	return NewWith(t, cell, func(*node.Config) {})
}

// NewWith is New with nodes whose settings change has changed.
func NewWith(t testing.TB, cell tenant.CellName, change func(*node.Config)) *Cluster {
	t.Helper()
	c := &Cluster{
		t: t, Cell: cell, change: change, Clock: &Clock{}, dir: t.TempDir(),
		formed: make(map[string]string), addrs: make(map[string]string), nodes: make(map[string]*node.Node), clients: make(map[string]*http.Client),
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	c.check(err)
	c.Signer, err = identity.NewSigner("G1", key, c.Clock.Now)
	c.check(err)
	c.ca, err = mtls.NewCA(time.Now(), time.Hour)
	c.check(err)
	c.gateway = c.Issue(mtls.Gateway("G1"))
	listeners := make(map[string]net.Listener)
	for _, name := range []string{"n1", "n2", "n3"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		c.check(err)
		listeners[name], c.addrs[name], c.formed[name] = l, l.Addr().String(), l.Addr().String()
	}
	t.Cleanup(c.stopAll)
	for name, l := range listeners {
		c.open(name, l, node.Config{Bootstrap: true})
	}
	c.Leader()
	return c
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// Issue makes a certificate of the cluster's CA.
func (c *Cluster) Issue(identity string) *mtls.PKI {
	c.t.Helper()
	pki, err := c.ca.Issue(identity, time.Now(), time.Hour)
	c.check(err)
	return pki
}

// open starts a node; how says whether it forms the cell or joins it.
func (c *Cluster) open(name string, l net.Listener, how node.Config) {
	c.t.Helper()
	peers := maps.Clone(c.formed)
	peers[name] = l.Addr().String()
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("NODETEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	cfg := node.Config{
		Cell: c.Cell, Name: name, Region: "here", Dir: filepath.Join(c.dir, name), Listener: l,
		PKI: c.Issue(mtls.Node(string(c.Cell), name)), Peers: peers, Bootstrap: how.Bootstrap, Join: how.Join,
		ContextKeys: []identity.Key{c.Signer.Key()}, Logger: logger, Clock: c.Clock.Now,
		Timing: raftfsm.Timing{Heartbeat: 800 * time.Millisecond, Commit: 10 * time.Millisecond},
	}
	c.change(&cfg)
	n, err := node.Open(context.Background(), cfg)
	c.check(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[name] = n
	c.clients[name] = c.client(name, c.gateway)
}

// client speaks to one node under an identity.
func (c *Cluster) client(name string, as *mtls.PKI) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: mtls.ClientConfig(as, mtls.Node(string(c.Cell), name), "http/1.1"), MaxIdleConnsPerHost: 64,
		},
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Client speaks to one node under another identity than the gateway's.
func (c *Cluster) Client(name, identity string) *http.Client {
	c.t.Helper()
	client := c.client(name, c.Issue(identity))
	c.t.Cleanup(client.CloseIdleConnections)
	return client
}

// Dir is where a node has its data.
func (c *Cluster) Dir(name string) string { return filepath.Join(c.dir, name) }

// Address is where a node listens.
func (c *Cluster) Address(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addrs[name]
}

// Node is a running node.
func (c *Cluster) Node(name string) *node.Node {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[name]
	if n == nil {
		c.t.Fatalf("node %s does not run", name)
	}
	return n
}

// Running lists the nodes that run.
func (c *Cluster) Running() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.nodes))
}

// Leader waits until a node leads that may answer, and returns its name.
func (c *Cluster) Leader() (leader string) {
	c.t.Helper()
	c.await("a leader", func() bool {
		for _, name := range c.Running() {
			n := c.Node(name)
			if _, sure := n.Group().LeaderSince(); sure && n.Ready() && n.Group().IsLeader() {
				leader = name
				return true
			}
		}
		return false
	})
	return leader
}

// Follower is a running node that does not lead and is ready.
func (c *Cluster) Follower() (follower string) {
	c.t.Helper()
	leader := c.Leader()
	c.await("a follower", func() bool {
		for _, name := range c.Running() {
			if name != leader && c.Node(name).Ready() {
				follower = name
				return true
			}
		}
		return false
	})
	return follower
}

// await asks until the answer is yes.
func (c *Cluster) await(what string, yes func() bool) {
	c.t.Helper()
	Await(c.t, what, yes)
}

// Await asks until the answer is yes, and fails the test after Patience.
func Await(t testing.TB, what string, yes func() bool) {
	t.Helper()
	end := time.NewTimer(Patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("waited %s for %s", Patience, what)
		}
	}
}

// Stop stops a node in order.
func (c *Cluster) Stop(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c.end(name, ctx)
}

// Kill stops a node without draining anything or handing anything over.
func (c *Cluster) Kill(name string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.end(name, ctx)
}

func (c *Cluster) end(name string, ctx context.Context) {
	c.t.Helper()
	n := c.Node(name)
	err := n.Close(ctx)
	c.mu.Lock()
	delete(c.nodes, name)
	c.clients[name].CloseIdleConnections()
	c.mu.Unlock()
	if err != nil {
		c.t.Errorf("close %s: %v", name, err)
	}
}

// Lost waits until a node fails, and returns why and how it closed.
func (c *Cluster) Lost(name string) (failed, closed error) {
	c.t.Helper()
	n := c.Node(name)
	select {
	case failed = <-n.Failed():
	case <-time.After(Patience):
		c.t.Fatalf("node %s did not fail within %s", name, Patience)
	}
	closed = n.Close(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, name)
	c.clients[name].CloseIdleConnections()
	return failed, closed
}

// Start starts a stopped node again, on its data and its address.
func (c *Cluster) Start(name string) {
	c.t.Helper()
	l, err := net.Listen("tcp", c.Address(name))
	c.check(err)
	_, formed := c.formed[name]
	c.open(name, l, node.Config{Join: !formed})
}

func (c *Cluster) stopAll() {
	names := c.Running()
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			n := c.Node(name)
			select {
			case err := <-n.Failed():
				c.t.Errorf("node %s failed: %v", name, err)
			default:
			}
			c.Kill(name)
		})
	}
	wg.Wait()
}

// AwaitSwept waits until a node has no folder left of a tenant that was dropped.
func (c *Cluster) AwaitSwept(name string, of Tenant) {
	c.t.Helper()
	c.await("the folders of "+string(of.ID)+" on "+name+" to go", func() bool {
		left, err := os.ReadDir(filepath.Join(c.Dir(name), "tenants", string(of.UID)))
		return len(left) == 0 && (err == nil || errors.Is(err, os.ErrNotExist))
	})
}

// EnsureSame waits until all running nodes have applied the same entries and lack
// nothing, and wants equal content of every tenant and of the cell's own file.
func (c *Cluster) EnsureSame() {
	c.t.Helper()
	leader := c.Node(c.Leader())
	index, err := leader.Group().ReadIndex(context.Background())
	c.check(err)
	var want map[string]string
	for _, name := range c.Running() {
		n := c.Node(name)
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		err := n.Group().WaitApplied(ctx, index)
		cancel()
		c.check(err)
		c.await("absent tenants of "+name, func() bool { return n.Space().Absent() == 0 })
		got := c.digests(n)
		if want == nil {
			want = got
		}
		if !maps.Equal(got, want) {
			c.t.Fatalf("node %s differs:\n%v\nanother has\n%v", name, got, want)
		}
	}
}

func (c *Cluster) digests(n *node.Node) map[string]string {
	c.t.Helper()
	rows, err := n.Space().Tenants()
	c.check(err)
	out := make(map[string]string)
	targets := []string{""}
	for _, row := range rows {
		targets = append(targets, string(row.UID))
	}
	for _, target := range targets {
		f, release, err := n.Space().Acquire(target)
		c.check(err)
		sum, ctl, err := f.Digest(context.Background())
		release()
		c.check(err)
		out[target] = fmt.Sprintf("%d:%d:%s", ctl.Applied, ctl.Sequence, hex.EncodeToString(sum[:8]))
	}
	return out
}
