package raftfsm

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"celld/raftfsm/mtls"
)

// Mux shares one TLS port between HTTP, the Raft traffic of any number of groups
// and what else there is, told apart by ALPN. Only processes of the cluster get
// through.
//
// Serve owns one goroutine a connection until the connection is handed on.
type Mux struct {
	l    net.Listener
	pki  *mtls.PKI
	http *muxListener

	mu     sync.Mutex
	others map[string]*muxListener // by protocol; all but HTTP
	config *tls.Config             // replaced whenever others changes

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup
}

const (
	httpProtocol     = "http/1.1"
	handshakeTimeout = 10 * time.Second
	maxHandshakes    = 256 // at a time
)

// NewMux makes a mux on l. Only peers with a certificate of the cluster's CA get
// through.
func NewMux(l net.Listener, pki *mtls.PKI) (*Mux, error) {
	if l == nil || pki == nil {
		return nil, errors.New("raftfsm: a mux needs a listener and a PKI")
	}
	m := &Mux{l: l, pki: pki, others: make(map[string]*muxListener)}
	m.life, m.end = context.WithCancel(context.Background())
	m.http = m.listener(httpProtocol, func(string) bool { return true })
	m.configure()
	return m, nil
}

func (m *Mux) listener(protocol string, admits func(identity string) bool) *muxListener {
	return &muxListener{mux: m, protocol: protocol, admits: admits, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// configure is called with mu held, or before anybody else knows the mux.
func (m *Mux) configure() {
	protocols := []string{httpProtocol}
	for protocol := range m.others {
		protocols = append(protocols, protocol)
	}
	m.config = mtls.ServerConfig(m.pki, protocols...)
	m.config.DynamicRecordSizingDisabled = true // one record for what is written in one piece
}

// HTTP is the listener for an http.Server: its connections are *tls.Conn, so
// that a request's TLS field names the peer.
func (m *Mux) HTTP() net.Listener { return m.http }

// Raft is the listener for the transport of a group's member with that logical
// name. It lets in only those who may be members: for "directory" gateways, for a
// cell its own nodes. A second call for a member takes the first one's place.
func (m *Mux) Raft(group, logical string) net.Listener {
	return m.Listen(alpn(group, logical), func(identity string) bool { return mtls.MayJoin(group, identity) })
}

// Listen is the listener for another protocol. It lets in only the peers whose
// identity admits takes. A second call for a protocol takes the first one's place.
func (m *Mux) Listen(protocol string, admits func(identity string) bool) net.Listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.listener(protocol, admits)
	m.others[protocol] = l
	m.configure()
	return l
}

// Serve accepts connections until Close. It returns nil after Close.
func (m *Mux) Serve() error {
	defer m.wg.Wait()
	slots := make(chan struct{}, maxHandshakes)
	delay := time.Duration(0)
	for {
		conn, err := m.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				select {
				case <-m.life.Done():
					return nil
				default:
					return err
				}
			}
			// Out of descriptors, most likely: others will give some back.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(delay):
				continue
			case <-m.life.Done():
				return nil
			}
		}
		delay = 0
		select {
		case slots <- struct{}{}:
		case <-m.life.Done():
			return conn.Close()
		}
		m.wg.Go(func() {
			defer func() { <-slots }()
			m.admit(conn)
		})
	}
}

// admit makes the handshake and hands the connection to its listener. Who fails
// is not answered.
func (m *Mux) admit(raw net.Conn) {
	m.mu.Lock()
	config := m.config
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.life, handshakeTimeout)
	defer cancel()
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return
	}
	state := conn.ConnectionState()
	l := m.http
	if protocol := state.NegotiatedProtocol; protocol != "" && protocol != httpProtocol {
		m.mu.Lock()
		l = m.others[protocol]
		m.mu.Unlock()
	}
	if identity, err := mtls.PeerIdentity(&state); l != nil && (err != nil || !l.admits(identity)) {
		l = nil
	}
	if l == nil {
		_ = conn.Close()
		return
	}
	select {
	case l.conns <- conn:
	case <-l.closed:
		_ = conn.Close() // nobody is there for it
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// Close closes the port and the listeners made of it. Connections that were
// handed on are their owners'.
func (m *Mux) Close() error {
	if m.life.Err() != nil {
		return nil
	}
	m.end()
	return m.l.Close()
}

// muxListener is one protocol's share of a mux.
type muxListener struct {
	mux      *Mux
	protocol string
	admits   func(identity string) bool
	conns    chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (l *muxListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
	case <-l.mux.life.Done():
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener. The port stays open for the others.
func (l *muxListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mux.mu.Lock()
		defer l.mux.mu.Unlock()
		if l.mux.others[l.protocol] == l {
			delete(l.mux.others, l.protocol)
			l.mux.configure()
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *muxListener) Addr() net.Addr { return l.mux.l.Addr() }
