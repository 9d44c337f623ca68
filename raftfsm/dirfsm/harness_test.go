package dirfsm_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/raftfsm/mtls"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory is a group of one: commands take the way that they always take.
type directory struct {
	t       *testing.T
	space   *dirfsm.Space
	group   *raftfsm.Group
	now     atomic.Int64 // unix microseconds
	touched atomic.Uint64
	keys    int
}

const start = 1_800_000_000_000_000 // the proposer's first time

func open(t *testing.T) *directory {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t *testing.T, dir string) *directory {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	must(t, err)
	pki, err := ca.Issue(mtls.Gateway("G1"), time.Now(), time.Hour)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	mux, err := raftfsm.NewMux(l, pki)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- mux.Serve() }()
	transport, err := raftfsm.NewTransport(raftfsm.TransportConfig{Group: "directory", Name: "G1", Listener: mux.Raft("directory", "G1"), PKI: pki,
		Resolve: func(string) (string, error) { return l.Addr().String(), nil }})
	must(t, err)
	d := &directory{t: t}
	d.now.Store(start)
	d.space, err = dirfsm.OpenSpace(dir)
	must(t, err)
	d.group, err = raftfsm.Open(raftfsm.Config{
		ID: "G1", Group: "directory", Dir: dir + "/raft", Bootstrap: true, Voters: []raftfsm.Server{{ID: "G1", Address: "G1"}},
		Table:     dirfsm.Table(func(s uint64) { d.touched.Store(s); d.space.Touch(s) }, nil),
		Guard:     dirfsm.Guard,
		Space:     d.space,
		Transport: transport,
		Timing:    raftfsm.Timing{Heartbeat: 50 * time.Millisecond},
		Clock:     func() time.Time { return time.UnixMicro(d.now.Load()) },
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, d.group.Close())
		must(t, d.space.Close())
		must(t, mux.Close())
		<-served
	})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *directory) propose(actor string, key *raftfsm.Key, n raftfsm.Number, body any) (raftfsm.Outcome, error) {
	d.t.Helper()
	c, err := raftfsm.NewCommand(n, "", body)
	must(d.t, err)
	c.Actor, c.Key = actor, key
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		out, err := d.group.Propose(ctx, c)
		if !errors.Is(err, raftfsm.ErrNotLeader) || ctx.Err() != nil {
			return out, err
		}
	}
}

// do applies a command that must not be refused.
func (d *directory) do(actor string, n raftfsm.Number, body any) raftfsm.Outcome {
	d.t.Helper()
	out, err := d.propose(actor, nil, n, body)
	if err != nil {
		d.t.Error(err)
	}
	return out
}

// refuse applies a command that must be refused with slug and leave nothing.
func (d *directory) refuse(slug, actor string, n raftfsm.Number, body any) {
	d.t.Helper()
	before, at := d.digest()
	mark := d.touched.Load()
	_, err := d.propose(actor, nil, n, body)
	if err == nil || fault.As(err).Slug != slug {
		d.t.Fatalf("got %v, want %s", err, slug)
	}
	after, now := d.digest()
	if before != after || at != now {
		d.t.Fatalf("the refusal %s left something behind: %+v became %+v", slug, at, now)
	}
	if mark != d.touched.Load() {
		d.t.Fatalf("the refusal %s dropped what others remember", slug)
	}
}

func (d *directory) digest() ([32]byte, store.Control) {
	d.t.Helper()
	sum, at, err := d.space.Digest(context.Background())
	must(d.t, err)
	return sum, at
}

func (d *directory) number(sql string, args ...any) int64 {
	d.t.Helper()
	var n int64
	_, err := d.space.View(func(c *store.Conn) error {
		_, err := c.One(sql, func(r *store.Row) error { n = r.ColumnInt64(0); return nil }, args...)
		return err
	})
	must(d.t, err)
	return n
}

const op = dirfsm.OperatorPrefix + "root"
const gw = dirfsm.GatewayPrefix + "G1"

func secret(id string) dirfsm.Secret {
	sum := sha256.Sum256([]byte(id))
	return dirfsm.Secret{ID: id, Hash: sum[:]}
}

func uid(n byte) tenant.UID {
	return tenant.UID("aaaaaaaaaaaaaaaaaaaaaaaaa" + string('a'+rune(n)))
}

func (d *directory) user(id string) {
	d.t.Helper()
	d.do(op, dirfsm.NumCreateUser, dirfsm.CreateUser{ID: tenant.UserID(id), Email: id + "@example.org", Name: id, Password: "x"})
}

func (d *directory) cell(name, region string, capacity int64) {
	d.t.Helper()
	d.do(op, dirfsm.NumPutCell, dirfsm.PutCell{Name: tenant.CellName(name), Key: tenant.CellKey("key-" + name), Region: region,
		Tier: "pooled", State: "active", Capacity: capacity, Nodes: []dirfsm.CellNode{{Name: "n1", Address: "127.0.0.1:1"}}})
}

// tenant makes a tenant of owner and returns where it was placed.
func (d *directory) tenant(u tenant.UID, id, owner, region string) dirfsm.TenantCreated {
	d.t.Helper()
	out := d.do(owner, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: tenant.ID(id), UID: u, Name: id, Owner: tenant.UserID(owner), Region: region, Tier: "pooled"})
	return into[dirfsm.TenantCreated](d.t, out)
}

func into[T any](t *testing.T, out raftfsm.Outcome) T {
	t.Helper()
	var v T
	must(t, out.Into(&v))
	return v
}

// join has inviter invite user, who accepts.
func (d *directory) join(u tenant.UID, inviter, user string, role tenant.Role) dirfsm.MemberChanged {
	d.t.Helper()
	d.keys++
	s := secret("inv-" + string(rune('a'+d.keys)))
	d.do(inviter, dirfsm.NumCreateInvite, dirfsm.CreateInvite{UID: u, Invite: s, Email: user + "@example.org", Role: role, Lifetime: 1000})
	return into[dirfsm.MemberChanged](d.t, d.do(user, dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: tenant.UserID(user), Hash: s.Hash}))
}

// together runs work for 0 to n-1 in parallel, so that many commands share a log
// entry.
func together(n int, work func(i int)) {
	var wg sync.WaitGroup
	hands := 100
	for h := range hands {
		wg.Go(func() {
			for i := h; i < n; i += hands {
				work(i)
			}
		})
	}
	wg.Wait()
}
