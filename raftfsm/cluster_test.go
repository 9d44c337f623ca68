package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"celld/raftfsm/mtls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 60 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// wires is the network between members: pairs of them can be cut.
type wires struct {
	mu    sync.Mutex
	addr  map[string]string // by name
	cuts  map[[2]string]bool
	conns map[net.Conn][2]string
}

func pair(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

func (w *wires) resolve(name string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.addr[name]; ok {
		return a, nil
	}
	return "", fmt.Errorf("nobody is called %s", name)
}

func (w *wires) dialer(from string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, a := range w.addr {
			if a == addr {
				if w.cuts[pair(from, name)] {
					conn.Close()
					return nil, errors.New("cut")
				}
				w.conns[conn] = pair(from, name)
			}
		}
		return conn, nil
	}
}

func (w *wires) cut(a string, others ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range others {
		p := pair(a, b)
		w.cuts[p] = true
		for c, of := range w.conns {
			if of == p {
				c.Close()
				delete(w.conns, c)
			}
		}
	}
}

func (w *wires) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
}

// member is one member of a test cluster, running or not.
type member struct {
	name, id, dir string
	files         *files
	group         *Group
	mux           *Mux
	served        chan error
	observer      *raft.Observer
	events        chan raft.Observation
	watching      sync.WaitGroup
}

type cluster struct {
	t       testing.TB
	ca      *mtls.CA
	wires   wires
	members []*member
	change  func(*Config) // of every member's configuration

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when Raft reports anything
}

func newCluster(t testing.TB, n int, change func(*Config)) *cluster {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, ca: ca, change: change, changed: make(chan struct{})}
	c.wires = wires{addr: make(map[string]string), cuts: make(map[[2]string]bool), conns: make(map[net.Conn][2]string)}
	for i := range n {
		name := fmt.Sprintf("C2/n%d", i+1)
		dir := t.TempDir()
		c.members = append(c.members, &member{name: name, id: fmt.Sprintf("id%d", i+1), dir: dir, files: newFiles(t, dir)})
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			c.stop(m)
		}
	})
	for _, m := range c.members {
		if err := c.start(m, true); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) voters() []Server {
	var s []Server
	for _, m := range c.members {
		s = append(s, Server{ID: m.id, Address: m.name})
	}
	return s
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("CELLD_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func (c *cluster) start(m *member, bootstrap bool) error {
	c.t.Helper()
	id, name, _ := splitName(m.name)
	pki, err := c.ca.Issue(mtls.Node(id, name), time.Now(), time.Hour)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux, err := NewMux(l, pki)
	if err != nil {
		return err
	}
	m.mux, m.served = mux, make(chan error, 1)
	go func(served chan error) { served <- mux.Serve() }(m.served)
	c.wires.mu.Lock()
	c.wires.addr[m.name] = l.Addr().String()
	c.wires.mu.Unlock()
	logical := m.name
	if joined(m.id) {
		logical = "C2/" + m.id
	}
	tr, err := NewTransport(TransportConfig{Group: "C2", Name: logical, Listener: mux.Raft("C2", logical), PKI: pki,
		Resolve: c.wires.resolve, Dial: c.wires.dialer(m.name), Logger: testLogger(c.t), Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	cfg := Config{
		ID: m.id, Group: "C2", Dir: filepath.Join(m.dir, "raft"), Voters: c.voters(), Bootstrap: bootstrap,
		Table: m.files.table(), Space: m.files, Transport: tr, Logger: testLogger(c.t),
		Timing: Timing{Heartbeat: 300 * time.Millisecond, Commit: 10 * time.Millisecond},
	}
	if c.change != nil {
		c.change(&cfg)
	}
	if m.group, err = Open(cfg); err != nil {
		return errors.Join(err, mux.Close(), <-m.served)
	}
	m.events = make(chan raft.Observation, 64)
	m.observer = raft.NewObserver(m.events, true, nil)
	m.group.raft.RegisterObserver(m.observer)
	m.watching.Go(func() {
		for range m.events {
			c.mu.Lock()
			close(c.changed)
			c.changed = make(chan struct{})
			c.mu.Unlock()
		}
	})
	return nil
}

func splitName(name string) (cell, node string, ok bool) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return "", "", false
}

func (c *cluster) stop(m *member) {
	c.t.Helper()
	if m.group != nil {
		if err := m.group.Close(); err != nil {
			c.t.Errorf("close %s: %v", m.name, err)
		}
		m.group.raft.DeregisterObserver(m.observer)
		close(m.events)
		m.watching.Wait()
		if err := errors.Join(m.mux.Close(), <-m.served); err != nil {
			c.t.Error(err)
		}
		m.group = nil
	}
	m.files.close(c.t)
}

// crash stops a member as a crash would look to the others.
func (c *cluster) crash(m *member) {
	c.t.Helper()
	m.group.transport.cut()
	c.stop(m)
}

func (c *cluster) restart(m *member) {
	c.t.Helper()
	if err := c.start(m, false); err != nil {
		c.t.Fatal(err)
	}
}

// leader waits until one of the members leads and a read has confirmed it.
func (c *cluster) leader(among ...*member) *member {
	c.t.Helper()
	if among == nil {
		among = c.members
	}
	ctx := testContext(c.t)
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		for _, m := range among {
			if m.group == nil || !m.group.IsLeader() {
				continue
			}
			if _, err := m.group.ReadIndex(ctx); err == nil {
				return m
			}
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // a term's confirmation is no event of Raft's
		case <-ctx.Done():
			c.t.Fatal("no leader")
		}
	}
}

func command(t testing.TB, n Number, target string, body any) Command {
	t.Helper()
	c, err := NewCommand(n, target, body)
	if err != nil {
		t.Fatal(err)
	}
	c.Actor = "U7"
	return c
}

func keyed(t testing.TB, c Command, key string) Command {
	t.Helper()
	hash, err := HashOf(c.Body)
	if err != nil {
		t.Fatal(err)
	}
	c.Key = &Key{Actor: "U7", Operation: "put", Key: key, Hash: hash}
	return c
}

// must proposes at the leader, whoever it is by then, until it is certain that
// the command took effect. The command needs a key for that.
func (c *cluster) must(cmd Command, among ...*member) Outcome {
	c.t.Helper()
	ctx := testContext(c.t)
	for {
		out, err := c.leader(among...).group.Propose(ctx, cmd)
		if err == nil {
			return out
		}
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			c.t.Fatalf("propose: %v", err)
		}
		if ctx.Err() != nil {
			c.t.Fatal(ctx.Err())
		}
	}
}

// settled waits until all running members have applied index.
func (c *cluster) settled(index uint64) {
	c.t.Helper()
	ctx := testContext(c.t)
	for _, m := range c.members {
		if m.group == nil {
			continue
		}
		if err := m.group.WaitApplied(ctx, index); err != nil {
			c.t.Fatalf("%s: %v", m.name, err)
		}
	}
}

// same checks that all running members have the same content.
func (c *cluster) same(targets ...string) {
	c.t.Helper()
	for _, target := range targets {
		want, from := "", ""
		for _, m := range c.members {
			if m.group == nil {
				continue
			}
			got := m.files.content(c.t, target)
			if from == "" {
				want, from = got, m.name
			} else if got != want {
				c.t.Fatalf("%q differs:\n%s: %s\n%s: %s", target, from, want, m.name, got)
			}
		}
	}
}
