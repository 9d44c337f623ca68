package baseline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"celld/cmd/celldbench/load"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
)

// EntryBytes is the size of a raw entry: about that of one command of a cell.
const EntryBytes = 300

// Raw is Raft alone: the members of a group with a cell's log store,
// transport and settings, and a state machine that does nothing. Every call of
// Apply is an entry of its own; Raft itself groups the entries that wait.
type Raw struct {
	members []*member
	leader  *raft.Raft
}

type member struct {
	mux       *raftfsm.Mux
	served    chan error
	transport *raftfsm.Transport
	logs      *raftboltdb.BoltStore
	raft      *raft.Raft
}

const (
	rawCell = "RAW"
	// patience is the most that one entry may take.
	patience = 30 * time.Second
)

// StartRaw forms a group below dir and waits for its leader.
func StartRaw(ctx context.Context, dir string, members int) (g *Raw, err error) {
	g = &Raw{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start raw Raft: %w", err), g.Close())
		}
	}()
	ca, err := mtls.NewCA(time.Now(), 24*time.Hour)
	if err != nil {
		return g, err
	}
	addrs := map[string]string{}
	var listeners []net.Listener
	var first raft.Configuration
	for i := range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return g, err
		}
		listeners = append(listeners, l)
		name := rawCell + "/n" + strconv.Itoa(i+1)
		addrs[name] = l.Addr().String()
		first.Servers = append(first.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
	}
	resolve := func(name string) (string, error) { return addrs[name], nil }
	for i, l := range listeners {
		pki, err := ca.Issue(mtls.Node(rawCell, "n"+strconv.Itoa(i+1)), time.Now(), 24*time.Hour)
		if err != nil {
			return g, err
		}
		m := &member{}
		g.members = append(g.members, m)
		if err := m.start(filepath.Join(dir, strconv.Itoa(i+1)), l, pki, resolve, first, i); err != nil {
			return g, err
		}
	}
	return g, g.awaitLeader(ctx)
}

func (m *member) start(dir string, l net.Listener, pki *mtls.PKI, resolve func(string) (string, error), first raft.Configuration, i int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	id := first.Servers[i].ID
	mux, err := raftfsm.NewMux(l, pki)
	if err != nil {
		return err
	}
	m.mux, m.served = mux, make(chan error, 1)
	go func() { m.served <- mux.Serve() }()
	m.transport, err = raftfsm.NewTransport(raftfsm.TransportConfig{
		Group: rawCell, Name: string(id), Listener: mux.Raft(rawCell, string(id)), PKI: pki, Resolve: resolve,
	})
	if err != nil {
		return err
	}
	m.logs, err = raftboltdb.New(raftboltdb.Options{
		Path:                    filepath.Join(dir, "log.db"),
		BoltOptions:             &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return err
	}
	cached, err := raft.NewLogCache(512, m.logs)
	if err != nil {
		return err
	}
	c := rawConfig(id)
	snapshots := raft.NewDiscardSnapshotStore()
	if err := raft.BootstrapCluster(c, cached, m.logs, snapshots, m.transport, first); err != nil {
		return err
	}
	m.raft, err = raft.NewRaft(c, idle{}, cached, m.logs, snapshots, m.transport)
	return err
}

// rawConfig is what package raftfsm sets for a group of a platform on one
// machine.
func rawConfig(id raft.ServerID) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = time.Second, time.Second, time.Second
	c.CommitTimeout = 50 * time.Millisecond
	c.MaxAppendEntries = 128
	c.BatchApplyCh = true
	c.NoSnapshotRestoreOnStart = true
	c.NoLegacyTelemetry = true
	c.SnapshotThreshold = 1 << 40 // the state machine has nothing to take a snapshot of
	c.Logger = hclog.NewNullLogger()
	return c
}

func (g *Raw) awaitLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no member was elected"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, m := range g.members {
			if m.raft.VerifyLeader().Error() == nil {
				g.leader = m.raft
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Close stops all members.
func (g *Raw) Close() error {
	var err error
	for _, m := range g.members {
		if m.raft != nil {
			err = errors.Join(err, m.raft.Shutdown().Error())
		}
		if m.transport != nil {
			err = errors.Join(err, m.transport.Close())
		}
		if m.mux != nil {
			err = errors.Join(err, m.mux.Close(), <-m.served)
		}
		if m.logs != nil {
			err = errors.Join(err, m.logs.Close())
		}
	}
	return err
}

// rawCaller applies one entry at a time.
type rawCaller struct {
	leader *raft.Raft
	entry  [EntryBytes]byte
}

// Caller makes a caller of the leader.
func (g *Raw) Caller() load.Caller { return &rawCaller{leader: g.leader} }

// Call implements load.Caller.
func (c *rawCaller) Call(context.Context) (class int, err error) {
	return 0, c.leader.Apply(c.entry[:], patience).Error()
}

// Close implements load.Caller.
func (c *rawCaller) Close() error { return nil }

// idle is a state machine that does nothing.
type idle struct{}

func (idle) Apply(*raft.Log) any { return nil }

func (idle) ApplyBatch(logs []*raft.Log) []any { return make([]any, len(logs)) }

func (idle) Snapshot() (raft.FSMSnapshot, error) {
	return nil, errors.New("there is nothing to take a snapshot of")
}

func (idle) Restore(r io.ReadCloser) error { return r.Close() }
