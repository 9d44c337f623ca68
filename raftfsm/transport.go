package raftfsm

import (
	"context"
	"log/slog"
	"net"
	"time"

	"celld/raftfsm/mtls"
)

// TransportConfig is what a transport needs. All but Dial, Logger and Timeout
// are required.
type TransportConfig struct {
	Group    string
	Name     string       // this member's logical name
	Listener net.Listener // Mux.Raft(Group)
	PKI      *mtls.PKI
	// Resolve returns the host:port of a logical name. It is asked for each new
	// connection, so names may move between restarts.
	Resolve func(name string) (string, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // below TLS; nil for a net.Dialer
	Logger  *slog.Logger
	Timeout time.Duration // of one RPC; default 10 s
}

// Transport carries one member's Raft traffic.
type Transport struct{}

// NewTransport makes a transport and starts to accept.
func NewTransport(cfg TransportConfig) (*Transport, error) { panic("not yet") }

// Close ends all connections. A group closes its transport itself.
func (t *Transport) Close() error { panic("not yet") }
