package node

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/gateway/identity"
	"celld/node/fetch"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store"
	"celld/store/room"
	"celld/store/stall"
	"celld/store/tenant"
)

// Config is what a node is told. Cell, Name, Dir, Listener, PKI, Peers and
// ContextKeys are required.
type Config struct {
	Cell   tenant.CellName
	Name   string // within the cell, like n1
	Region string
	Dir    string // nothing else writes there

	Listener net.Listener      // the inner port, plain TCP; the node owns it
	PKI      *mtls.PKI         // its identity must be this node's
	Peers    map[string]string // every node of the cell by name, this one too, with host:port
	// Bootstrap forms a new cell of Peers: set at the first start of all its
	// nodes, and never again for a node that has lost its data.
	Bootstrap bool
	// Join says that the node is not one of those that formed the cell: with an
	// empty Dir it takes a new server id and waits until the cell adds it.
	Join        bool
	ContextKeys []identity.Key // public keys of the gateways

	// MaxOpen bounds the tenants' files that are open at once; 0 for no bound but
	// Descriptors.
	MaxOpen     int
	Descriptors *store.Descriptors // shared by the process's nodes; nil for all that the process has
	// CacheBytes bounds the records that are kept rendered, see package records; 0
	// for DefaultCacheBytes, negative for none.
	CacheBytes int64
	Slots      *store.Slots // shared by the process's nodes, see store.NewSlots; nil for one of its own
	Timing     raftfsm.Timing
	Limits     raftfsm.Limits
	Fetch      fetch.Limits // of what is fetched from other nodes and sent to them
	// DigestEvery is within which time each tenant's replicas are compared, and
	// DigestRate how many bytes a second that may read; 0 for a day and 16 MiB.
	DigestEvery time.Duration
	DigestRate  int64
	Retention   Retention
	Logger      *slog.Logger          // nil for none
	Metrics     prometheus.Registerer // nil for none; two nodes of a process need wrapped ones
	Clock       func() time.Time      // stamps commands and dates contexts; nil for time.Now
	Room        *room.Room            // the space left below Dir; nil for no end of it. Whoever opened it closes it
	// DiskCall hears of each commit, checkpoint and sync right before it; nil for
	// nobody. A test has it not return, as a disk that hangs would.
	DiskCall func(stall.Call)
}

// DefaultCacheBytes is the size of a node's cache of records.
const DefaultCacheBytes = 64 << 20

func (c *Config) complete() error {
	switch {
	case !tenant.ValidID(string(c.Cell)) || !tenant.ValidID(c.Name):
		return fmt.Errorf("cell %q, node %q: a name is a letter and up to 31 letters, digits or hyphens", c.Cell, c.Name)
	case c.Dir == "" || c.Listener == nil || c.PKI == nil:
		return fmt.Errorf("node %s/%s: Dir, Listener and PKI are required", c.Cell, c.Name)
	case c.Peers[c.Name] == "":
		return fmt.Errorf("node %s/%s is not among its cell's nodes", c.Cell, c.Name)
	case c.Bootstrap && c.Join:
		return fmt.Errorf("node %s/%s can't both form the cell and join it", c.Cell, c.Name)
	case c.PKI.Identity != mtls.Node(string(c.Cell), c.Name):
		return fmt.Errorf("node %s/%s has the certificate of %s", c.Cell, c.Name, c.PKI.Identity)
	}
	if c.Descriptors == nil {
		var err error
		if c.Descriptors, err = store.NewDescriptors(); err != nil {
			return fmt.Errorf("node %s/%s: %w", c.Cell, c.Name, err)
		}
	}
	if c.Timing.Stall == 0 {
		c.Timing.Stall = raftfsm.DefaultStall
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if err := c.Retention.complete(); err != nil {
		return fmt.Errorf("node %s/%s: %w", c.Cell, c.Name, err)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("cell", string(c.Cell), "node", c.Name)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return nil
}

// replace tells operators how to replace this node when its folder is damaged.
func (c *Config) replace() string {
	return fmt.Sprintf("The other nodes have everything that was acknowledged. Rebuild this one: celld admin cell remove-node %[1]s %[2]s; "+
		"empty %[3]s; start it with the setting join; celld admin cell add-node %[1]s %[2]s --address %[4]s", c.Cell, c.Name, c.Dir, c.Peers[c.Name])
}

// full is a node's logical name in its group.
func (c *Config) full(name string) string { return string(c.Cell) + "/" + name }

// resolve finds the address of a logical name.
func (c *Config) resolve(full string) (string, error) {
	cell, name, _ := strings.Cut(full, "/")
	if address := c.Peers[name]; cell == string(c.Cell) && address != "" {
		return address, nil
	}
	return "", fmt.Errorf("no address is known for the node %s", full)
}

// voters is the first configuration of a new cell's group.
func (c *Config) voters() []raftfsm.Server {
	servers := make([]raftfsm.Server, 0, len(c.Peers))
	for _, name := range sortedNames(c.Peers) {
		servers = append(servers, raftfsm.Server{ID: name, Address: c.full(name)})
	}
	return servers
}

func sortedNames(peers map[string]string) []string { return slices.Sorted(maps.Keys(peers)) }
