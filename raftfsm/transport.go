package raftfsm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"celld/raftfsm/mtls"
)

// TransportConfig is what a transport needs. All but Dial, Logger and Timeout
// are required.
type TransportConfig struct {
	Group    string
	Name     string       // this member's logical name, with its id's suffix if it has one
	Listener net.Listener // Mux.Raft(Group, Name)
	PKI      *mtls.PKI
	// Resolve returns the host:port of a logical name without suffix. It is asked
	// for each new connection, so names may move between restarts. Whom it does not
	// know is called where the group's configuration says.
	Resolve func(name string) (string, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // below TLS; nil for a net.Dialer
	Logger  *slog.Logger
	Timeout time.Duration // of one RPC; default 10 s
}

// Transport carries one member's Raft traffic. It embeds the library's network
// transport, not its interface, because pre-vote depends on a method that the
// interface lacks; it overrides what it has to.
type Transport struct {
	*raft.NetworkTransport
	name    string
	timeout time.Duration
	acks    acks
	conns   conns

	incoming chan raft.RPC
	closing  chan struct{}
	closed   sync.Once
	work     sync.WaitGroup
	heard    atomic.Uint64 // the commit index that a leader first named; 0 before

	restraint atomic.Pointer[restraint] // nil before the group has started
}

// maxAppendBytes bounds the entries of one AppendEntries. One entry always goes.
const maxAppendBytes = 2 << 20

// inFlight is how many requests of a pipeline may wait for their answers. With
// the library's own 2 its channels have no room: when a follower answers with a
// higher term (after leadership was handed over, say), the reader of answers
// goes away, and a send that waits for it then waits for ever, and Shutdown with
// it.
const inFlight = 16

// alpn is the protocol name of the Raft traffic to one member. It names the
// member with its id's suffix, so that one that was wiped and joined anew under
// the same name and address never gets what is meant for who it was: it would
// answer, and be counted, as if it still had what it has lost.
func alpn(group, logical string) string { return alpnPrefix + group + "/" + logical }

const alpnPrefix = "celld-raft/"

// NewTransport makes a transport and starts to accept.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	if cfg.Group == "" || cfg.Name == "" || cfg.Listener == nil || cfg.PKI == nil || cfg.Resolve == nil {
		return nil, errors.New("raftfsm: a transport needs Group, Name, Listener, PKI and Resolve")
	}
	if own := mtls.Member(cfg.Group, NameOf(cfg.Name)); own != cfg.PKI.Identity {
		return nil, fmt.Errorf("the certificate is for %s, but the member is %s", cfg.PKI.Identity, own)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	defaultTo(&cfg.Timeout, 10*time.Second)
	t := &Transport{name: cfg.Name, incoming: make(chan raft.RPC), closing: make(chan struct{})}
	t.NetworkTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: raftLogger(cfg.Logger), Stream: &stream{cfg: cfg, conns: &t.conns},
		MaxPool: 4, Timeout: cfg.Timeout, MsgpackUseNewTimeFormat: true, MaxRPCsInFlight: inFlight,
	})
	t.timeout = cfg.Timeout
	t.work.Go(t.listen)
	return t, nil
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.incoming }

// listen passes requests on, and notes how far a leader first says that the log is
// committed. The library keeps of that no more than this member's own log reaches.
func (t *Transport) listen() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
				t.heard.CompareAndSwap(0, req.LeaderCommitIndex)
			}
			select {
			case t.incoming <- rpc:
			case <-t.closing:
				return
			}
		case <-t.closing:
			return
		}
	}
}

// SetHeartbeatHandler does nothing. The library would handle heartbeats beside
// its main loop, where they can raise the term under a leader that is just
// writing, and nodes then commit different entries.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.restraint.Load().holds(time.Now()) {
		return errHeldBack
	}
	return t.NetworkTransport.RequestPreVote(id, to, req, resp)
}

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	limitBytes(req)
	moment := t.acks.sending()
	err := t.NetworkTransport.AppendEntries(id, to, req, resp)
	if err == nil {
		t.acks.answered(id, moment, req, resp)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return pipeline{p, t.timeout}, nil
}

type pipeline struct {
	raft.AppendPipeline
	timeout time.Duration
}

// AppendEntries implements raft.AppendPipeline. A send that finds no room for as
// long as an answer may take ends the pipeline (see inFlight); the library then
// goes on without one.
func (p pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	limitBytes(req)
	stuck := time.AfterFunc(p.timeout, func() { _ = p.Close() })
	defer stuck.Stop()
	return p.AppendPipeline.AppendEntries(req, resp)
}

// limitBytes leaves to a later request what would make this one too large. The
// library goes on behind the last entry that the request holds after the call.
func limitBytes(req *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range req.Entries {
		if size += len(e.Data); size > maxAppendBytes && i > 0 {
			req.Entries = req.Entries[:i]
			return
		}
	}
}

// Cut ends all Raft traffic of this member for good.
func (t *Transport) cut() { t.conns.closeAll() }

// Close ends all connections. A group closes its transport itself.
func (t *Transport) Close() error {
	t.closed.Do(func() { close(t.closing) })
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	t.cut()
	t.work.Wait()
	return err
}

// stream is the connections below a transport.
type stream struct {
	cfg   TransportConfig
	conns *conns
}

// address is a logical name as a net.Addr.
type address string

func (a address) Network() string { return "celld" }
func (a address) String() string  { return string(a) }

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) {
	conn, err := s.cfg.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.conns.add(conn)
}

// Close implements net.Listener.
func (s *stream) Close() error { return s.cfg.Listener.Close() }

// Addr implements net.Listener: the library takes it for the member's address.
func (s *stream) Addr() net.Addr { return address(s.cfg.Name) }

// Dial implements raft.StreamLayer.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if s.conns.isCut() {
		return nil, errCut
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	logical, carried := splitAddress(to)
	name := NameOf(logical)
	hostport, err := s.cfg.Resolve(name)
	if err != nil && carried == "" {
		return nil, fmt.Errorf("resolve %s: %w", name, err)
	}
	if err != nil {
		hostport = carried
	}
	raw, err := s.cfg.Dial(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	protocol := alpn(s.cfg.Group, logical)
	conn := tls.Client(raw, mtls.ClientConfig(s.cfg.PKI, mtls.Member(s.cfg.Group, name), protocol))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s at %s: %w", logical, hostport, err), raw.Close())
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
		return nil, errors.Join(fmt.Errorf("%s at %s speaks %q, not %q", logical, hostport, got, protocol), conn.Close())
	}
	return s.conns.add(conn)
}
