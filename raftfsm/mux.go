package raftfsm

import (
	"net"

	"celld/raftfsm/mtls"
)

// Mux shares one TLS port between HTTP and the Raft traffic of any number of
// groups, told apart by ALPN.
type Mux struct{}

// NewMux makes a mux on l. Only peers with a certificate of the cluster's CA get
// through.
func NewMux(l net.Listener, pki *mtls.PKI) (*Mux, error) { panic("not yet") }

// HTTP is the listener for an http.Server: its connections are *tls.Conn, so
// that a request's TLS field names the peer.
func (m *Mux) HTTP() net.Listener { panic("not yet") }

// Raft is the listener for a group's transport. It lets in only those who may be
// members: for "directory" gateways, for a cell its own nodes.
func (m *Mux) Raft(group string) net.Listener { panic("not yet") }

// Serve accepts connections until Close.
func (m *Mux) Serve() error { panic("not yet") }

// Close closes the port and the listeners made of it.
func (m *Mux) Close() error { panic("not yet") }
