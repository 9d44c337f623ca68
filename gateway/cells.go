package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"celld/gateway/directory"
	"celld/raftfsm/mtls"
	"celld/store/tenant"
)

// routeAge is how long a cell's nodes are remembered without asking the directory
// again. Nothing depends on it: a node that is not the right one says so.
const routeAge = time.Second

// cells knows how to reach the nodes of each cell, and which one led last.
type cells struct {
	read  func(tenant.CellName) (directory.Cell, error)
	local map[string]http.Handler
	dial  func(cell, node, address string) *http.Transport
	now   func() time.Time

	mu    sync.RWMutex
	known map[tenant.CellName]*cell
}

// cell is one cell as it stood in the directory; only its atomics change.
type cell struct {
	name   tenant.CellName
	key    tenant.CellKey
	nodes  []*node // by name; never none
	leader atomic.Pointer[node]
	turn   atomic.Uint32
	until  atomic.Int64 // unix nanoseconds; then the directory is asked again
}

// node is one member of a cell: called directly, or over the wire.
type node struct {
	name    string // without the cell's, e.g. "n1"
	full    string // e.g. "C2/n1"
	address string
	local   http.Handler    // nil for one elsewhere
	wire    *http.Transport // nil for a local one
}

// errNoNodes says that the directory lists no node of a cell.
var errNoNodes = errors.New("the directory knows no node of the cell")

// find returns a cell, asked anew where anew says so or it is time to.
func (c *cells) find(name tenant.CellName, anew bool) (*cell, error) {
	c.mu.RLock()
	have := c.known[name]
	c.mu.RUnlock()
	now := c.now()
	if have != nil && !anew && now.UnixNano() < have.until.Load() {
		return have, nil
	}
	from, err := c.read(name)
	if err != nil {
		return nil, fmt.Errorf("look the cell %s up: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have = c.known[name]
	if have == nil || have.key != from.Key || !have.sameNodes(from.Nodes) {
		made, err := c.build(from, have)
		if err != nil {
			return nil, err
		}
		c.known[name] = made
		have = made
	}
	have.until.Store(now.Add(routeAge).UnixNano())
	return have, nil
}

func (c *cell) sameNodes(addresses map[string]string) bool {
	if len(c.nodes) != len(addresses) {
		return false
	}
	for _, n := range c.nodes {
		if address, ok := addresses[n.name]; !ok || address != n.address {
			return false
		}
	}
	return true
}

// build makes a cell, keeping the connections to nodes that stayed where they
// were and closing the idle ones of those that did not.
func (c *cells) build(from directory.Cell, before *cell) (*cell, error) {
	if len(from.Nodes) == 0 {
		return nil, fmt.Errorf("%s: %w", from.Name, errNoNodes)
	}
	made := &cell{name: from.Name, key: from.Key}
	kept := make(map[*node]bool)
	for _, name := range slices.Sorted(maps.Keys(from.Nodes)) {
		n := &node{name: name, full: string(from.Name) + "/" + name, address: from.Nodes[name]}
		if old := before.node(name); old != nil && old.address == n.address {
			n = old
			kept[old] = true
		} else if n.local = c.local[n.full]; n.local == nil {
			n.wire = c.dial(string(from.Name), name, n.address)
		}
		made.nodes = append(made.nodes, n)
	}
	if before != nil {
		for _, old := range before.nodes {
			if !kept[old] && old.wire != nil {
				old.wire.CloseIdleConnections()
			}
		}
		if old := before.leader.Load(); old != nil {
			made.leader.Store(made.node(old.name))
		}
	}
	return made, nil
}

func (c *cell) node(name string) *node {
	if c == nil {
		return nil
	}
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// pick chooses whom to ask. Reads that any replica may answer go round; others go
// to whoever led last. avoid is who has just failed.
func (c *cell) pick(any bool, avoid *node) *node {
	if lead := c.leader.Load(); lead != nil && lead != avoid && !any {
		return lead
	}
	for range c.nodes {
		n := c.nodes[int(c.turn.Add(1)-1)%len(c.nodes)]
		if n != avoid || len(c.nodes) == 1 {
			return n
		}
	}
	return c.nodes[0]
}

// learn keeps what an answer told about the leader: its name, or that n is not it.
func (c *cell) learn(n *node, leader string) {
	if hinted := c.node(leader); hinted != nil && hinted != n {
		c.leader.Store(hinted)
		return
	}
	c.leader.CompareAndSwap(n, nil)
}

// led keeps that n has answered as the leader.
func (c *cell) led(n *node) {
	if c.leader.Load() != n {
		c.leader.Store(n)
	}
}

// close closes idle connections; requests in flight keep theirs until they end.
func (c *cells) close() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, have := range c.known {
		for _, n := range have.nodes {
			if n.wire != nil {
				n.wire.CloseIdleConnections()
			}
		}
	}
}

// errDial marks an error of connecting: the request was never sent.
var errDial = errors.New("no connection")

// peerTransport carries requests to the one process with that identity.
func peerTransport(pki *mtls.PKI, identity, address string) *http.Transport {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	secure := &tls.Dialer{NetDialer: dialer, Config: mtls.ClientConfig(pki, identity, "http/1.1")}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			conn, err := secure.DialContext(ctx, network, address)
			if err != nil {
				return nil, fmt.Errorf("%w to %s at %s: %w", errDial, identity, address, err)
			}
			return conn, nil
		},
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, MaxConnsPerHost: 512, IdleConnTimeout: time.Minute,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
}
