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
	"celld/gateway/hop"
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
	dial  func(cell, node, address string) caller
	now   func() time.Time

	mu      sync.RWMutex
	known   map[tenant.CellName]*cell
	closing sync.WaitGroup // of callers of nodes that are gone
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
	here    bool // in this process
	caller
}

// caller asks a node. Close lets what is under way end.
type caller interface {
	hop.Caller
	Close()
}

// neighbour is a node in this process.
type neighbour struct{ hop.Local }

// Close implements caller.
func (neighbour) Close() {}

// node makes a member that is not known yet.
func (c *cells) node(cell, name, address string) *node {
	n := &node{name: name, full: cell + "/" + name, address: address}
	if handler := c.local[n.full]; handler != nil {
		n.here, n.caller = true, neighbour{hop.Local{Handler: handler}}
	} else {
		n.caller = c.dial(cell, name, address)
	}
	return n
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
// were and closing those of the others when nothing is under way on them.
func (c *cells) build(from directory.Cell, before *cell) (*cell, error) {
	if len(from.Nodes) == 0 {
		return nil, fmt.Errorf("%s: %w", from.Name, errNoNodes)
	}
	made := &cell{name: from.Name, key: from.Key}
	kept := make(map[*node]bool)
	for _, name := range slices.Sorted(maps.Keys(from.Nodes)) {
		n := before.node(name)
		if n != nil && n.address == from.Nodes[name] {
			kept[n] = true
		} else {
			n = c.node(string(from.Name), name, from.Nodes[name])
		}
		made.nodes = append(made.nodes, n)
	}
	if before != nil {
		for _, old := range before.nodes {
			if !kept[old] {
				c.closing.Go(old.Close)
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

// close closes all connections; requests in flight end first.
func (c *cells) close() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, have := range c.known {
		for _, n := range have.nodes {
			c.closing.Go(n.Close)
		}
	}
	c.closing.Wait()
}

// dialNode makes a client of the one node with that identity.
func dialNode(pki *mtls.PKI, identity, address string) caller {
	config := mtls.ClientConfig(pki, identity, hop.Protocol)
	config.DynamicRecordSizingDisabled = true // one record for what is written in one piece
	dialer := &tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 15 * time.Second}, Config: config}
	return hop.NewClient(hop.Config{Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", identity, address, err)
		}
		if secure, ok := conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != hop.Protocol {
			return nil, errors.Join(fmt.Errorf("%s at %s does not speak %s: it runs another release", identity, address, hop.Protocol), conn.Close())
		}
		return conn, nil
	}})
}
