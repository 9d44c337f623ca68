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
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 60 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// The commands of the tests: a group of files of numbered items.
const (
	cmdPut    Number = iota + 1 // one row
	cmdRefuse                   // writes a row and then refuses
	cmdOpen                     // on the group's own file: makes a target
	cmdFail                     // fails on members that are told to
	cmdMark                     // of class Probe
)

type put struct {
	_ struct{} `cbor:",toarray"`
	K string
	V int64
}

type open struct {
	_      struct{} `cbor:",toarray"`
	Target string
}

func testSchema(kind string) *store.Schema {
	return &store.Schema{Kind: kind, Migrations: []string{`
		CREATE TABLE item (k TEXT NOT NULL, v INTEGER NOT NULL, at INTEGER NOT NULL, n INTEGER PRIMARY KEY) STRICT;` + KeyTable}}
}

// files is a Space in a folder: own.db and <target>.db.
type files struct {
	dir string

	mu   sync.Mutex
	open map[string]*store.File

	failing   func(target string) error                  // local failures of Acquire
	install   func(step string) error                    // atInstall; under mu
	onAcquire func(target string)                        // sees every Acquire
	onSync    func() error                               // in place of the sync when set
	handler   func(tx *store.Tx, c *Command) (err error) // cmdFail
	look      Look                                       // cmdMark
}

func newFiles(t testing.TB, dir string) *files {
	t.Helper()
	fs := &files{dir: dir, open: make(map[string]*store.File)}
	if err := store.Create(fs.path(""), testSchema("own"), store.Control{CellKey: "key"}, 0); err != nil {
		t.Fatal(err)
	}
	return fs
}

func (fs *files) path(target string) string {
	if target == "" {
		target = "own"
	}
	return filepath.Join(fs.dir, target+".db")
}

func (fs *files) Acquire(target string) (*store.File, func(), error) {
	if fs.onAcquire != nil {
		fs.onAcquire(target)
	}
	if fs.failing != nil {
		if err := fs.failing(target); err != nil {
			return nil, nil, err
		}
	}
	if target != "" {
		if _, err := os.Stat(fs.absence(target)); err == nil {
			return nil, nil, ErrAbsent
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.open[target]; f != nil {
		return f, func() {}, nil
	}
	kind := "tenant"
	if target == "" {
		kind = "own"
	}
	if _, err := os.Stat(fs.path(target)); errors.Is(err, os.ErrNotExist) {
		return nil, nil, fault.New(fault.Moved, "placement-changed", "not here")
	}
	f, err := store.Open(fs.path(target), testSchema(kind))
	if err != nil {
		return nil, nil, err
	}
	fs.open[target] = f
	return f, func() {}, nil
}

func (fs *files) Files() ([]store.FileState, error) {
	paths, err := filepath.Glob(filepath.Join(fs.dir, "*.db"))
	if err != nil {
		return nil, err
	}
	states := make([]store.FileState, 1)
	for _, p := range paths {
		target := filepath.Base(p[:len(p)-len(".db")])
		if target == "own" {
			target = ""
		}
		f, release, err := fs.Acquire(target)
		if errors.Is(err, ErrAbsent) {
			states = append(states, store.FileState{Target: target, Absent: true})
			continue
		}
		if err != nil {
			return nil, err
		}
		state := store.FileState{Target: target, Index: f.Control().Applied}
		release()
		if target == "" {
			states[0] = state
		} else {
			states = append(states, state)
		}
	}
	return states, nil
}

func (fs *files) Sync() error {
	if fs.onSync != nil {
		return fs.onSync()
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.open {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// Absences are files of their own beside the targets': <target>.absent.
func (fs *files) absence(target string) string { return filepath.Join(fs.dir, target+".absent") }

func (fs *files) Damaged(target string, cause error) error {
	return os.WriteFile(fs.absence(target), []byte(cause.Error()), 0o600)
}

func (fs *files) Absent() int {
	all, _ := filepath.Glob(fs.absence("*"))
	return len(all)
}

func (fs *files) Recover([]store.FileState) error { return nil }

func (fs *files) Installed(in Installation) (bool, error) {
	f, release, err := fs.Acquire("")
	if err != nil {
		return false, err
	}
	defer release()
	done, err := os.ReadFile(filepath.Join(fs.dir, "installed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return (in.ID == "" || in.ID == string(done)) && f.Control().Applied >= in.OwnIndex(), nil
}

// atInstall has fn called before each step of Install, by a member that may run.
func (fs *files) atInstall(fn func(step string) error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.install = fn
}

func (fs *files) step(name string) error {
	fs.mu.Lock()
	fn := fs.install
	fs.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(name)
}

func (fs *files) Install(in Installation) error {
	if err := errors.Join(fs.step("sync"), fs.Sync()); err != nil {
		return err
	}
	local, err := fs.Files()
	if err != nil {
		return err
	}
	have := make(map[string]uint64)
	for _, f := range local {
		have[f.Target] = f.Index
	}
	for _, f := range in.Files[1:] {
		if index, there := have[f.Target]; !there || index < f.Index || f.Absent {
			if err := errors.Join(fs.step("mark"), fs.Damaged(f.Target, errors.New("behind"))); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(fs.step("note"), os.WriteFile(filepath.Join(fs.dir, "installed"), []byte(in.ID), 0o600)); err != nil {
		return err
	}
	if have[""] >= in.OwnIndex() {
		return nil
	}
	if err := errors.Join(fs.step("place"), fs.forget("")); err != nil {
		return err
	}
	return errors.Join(in.Place(fs.path("")), fs.step("placed"))
}

func (fs *files) forget(target string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[target]
	delete(fs.open, target)
	if f == nil {
		return nil
	}
	return f.Close()
}

// fetch copies an absent target's file from another member and has the group
// catch it up.
func (fs *files) fetch(ctx context.Context, g *Group, target string, from *member) error {
	asOf := from.group.Applied()
	f, release, err := from.files.Acquire(target)
	if err != nil {
		return err
	}
	defer release()
	staged := filepath.Join(fs.dir, target+".staged")
	if err := errors.Join(store.Remove(staged), f.CopyTo(staged)); err != nil {
		return err
	}
	copied, err := store.Open(staged, testSchema("tenant"))
	if err != nil {
		return err
	}
	err = g.CatchUp(ctx, target, copied, asOf, func() error {
		if err := errors.Join(copied.Close(), fs.forget(target), store.Remove(fs.path(target))); err != nil {
			return err
		}
		return errors.Join(os.Rename(staged, fs.path(target)), os.Remove(fs.absence(target)))
	})
	return errors.Join(err, copied.Close())
}

func (fs *files) close(t testing.TB) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for target, f := range fs.open {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		delete(fs.open, target)
	}
}

func (fs *files) table() *Table {
	return NewTable(
		DefineMark(cmdMark, "mark", func(c *Command, m Mark, index uint64, f *store.File, err error) {
			if fs.look != nil {
				fs.look(c, m, index, f, err)
			}
		}),
		Define(cmdPut, "put", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			return b.V, tx.Query("INSERT INTO item (k, v, at) VALUES (?, ?, ?)", nil, b.K, b.V, tx.Now)
		}),
		Define(cmdRefuse, "refuse", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			if err := tx.Query("INSERT INTO item (k, v, at) VALUES (?, ?, ?)", nil, b.K, b.V, tx.Now); err != nil {
				return 0, err
			}
			return 0, fault.New(fault.Conflict, "no", "not this one")
		}),
		Define(cmdOpen, "open", Control, func(tx *store.Tx, c *Command, b open) (int64, error) {
			return 0, store.Create(fs.path(b.Target), testSchema("tenant"), store.Control{
				UID: tenant.UID(b.Target), Tenant: tenant.ID(b.Target), CellKey: "key", Epoch: 1, State: tenant.Active, Applied: tx.Index,
			}, tx.Now)
		}),
		Define(cmdFail, "fail", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			if fs.handler == nil {
				return 0, nil
			}
			return 0, fs.handler(tx, c)
		}),
	)
}

// rows returns how many items of key k a target has here.
func (fs *files) rows(t testing.TB, target, k string) (n int) {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = f.View(func(c *store.Conn) error {
		_, err := c.One("SELECT count(*) FROM item WHERE k = ?", func(r *store.Row) error { n = r.ColumnInt(0); return nil }, k)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (fs *files) control(t testing.TB, target string) store.Control {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return f.Control()
}

// content is everything that a target's file says, applied index left out.
func (fs *files) content(t testing.TB, target string) string {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	out := ""
	err = f.View(func(c *store.Conn) error {
		if err := c.Query("SELECT n, k, v, at FROM item ORDER BY n", func(r *store.Row) error {
			out += fmt.Sprintf("%d %s %d %d\n", r.ColumnInt64(0), r.ColumnText(1), r.ColumnInt64(2), r.ColumnInt64(3))
			return nil
		}); err != nil {
			return err
		}
		return c.Query("SELECT hex(identity), hex(result) FROM idempotency ORDER BY 1", func(r *store.Row) error {
			out += r.ColumnText(0) + r.ColumnText(1) + "\n"
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctl := f.Control()
	return out + fmt.Sprint(ctl.Sequence, ctl.LastTime)
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
