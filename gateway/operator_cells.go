package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/gateway/hop"
	"celld/gateway/problem"
	"celld/store/fault"
	"celld/store/tenant"
)

// probeTimeout bounds a question to a node about itself.
const probeTimeout = time.Second

// nodeStatus is what a node says about itself; more than this is passed over.
type nodeStatus struct {
	Cell        string         `json:"cell"`
	CellKey     tenant.CellKey `json:"cellKey"`
	Node        string         `json:"node"`
	IsLeader    bool           `json:"isLeader"`
	Leader      string         `json:"leader"`
	Term        uint64         `json:"term"`
	Applied     uint64         `json:"applied"`
	Ready       bool           `json:"ready"`
	OpenTenants int            `json:"openTenants"`
	ServerID    string         `json:"serverId"`
	Absent      int            `json:"absent"`
	DiskFree    uint64         `json:"diskFree"`
	DiskReserve uint64         `json:"diskReserve"`
	HasRoom     bool           `json:"hasRoom"`
	DiskHangs   bool           `json:"diskHangs"`
	Members     []memberStatus `json:"members"`
}

// memberStatus is a member of a cell's Raft group, as its nodes know it.
type memberStatus struct {
	ID    string `json:"id"`
	Node  string `json:"node"`
	Voter bool   `json:"voter"`
}

// member returns what s knows of a node of that name.
func (s *nodeStatus) member(name string) (memberStatus, bool) {
	for _, m := range s.Members {
		if m.Node == name {
			return m, true
		}
	}
	return memberStatus{}, false
}

type nodeJSON struct {
	Node        string `json:"node"`
	Address     string `json:"address"`
	Healthy     bool   `json:"healthy"`
	Leader      bool   `json:"leader"`
	Term        uint64 `json:"term"`
	Applied     uint64 `json:"appliedIndex"`
	OpenTenants int    `json:"openTenants"`
	Absent      int    `json:"absent"` // tenants that it has to fetch
	Voter       bool   `json:"voter"`  // whether it counts for the cell's majority, as it knows itself
	ServerID    string `json:"serverId"`
	DiskFree    uint64 `json:"diskFree"`    // bytes, for its data; 0 if it keeps no reserve
	DiskReserve uint64 `json:"diskReserve"` // bytes; with less it takes on no writes
	HasRoom     bool   `json:"hasRoom"`     // whether it takes on writes
	Problem     string `json:"problem,omitempty"`
}

type cellJSON struct {
	Cell     tenant.CellName     `json:"cell"`
	Key      tenant.CellKey      `json:"key"`
	Region   string              `json:"region"`
	Tier     string              `json:"tier"`
	State    directory.CellState `json:"state"`
	Tenants  int                 `json:"tenants"`
	Capacity int                 `json:"capacity"`
	Nodes    []nodeJSON          `json:"nodes"`
}

// askNode asks one node a question of the gateway's own.
func (g *Gateway) askNode(ctx context.Context, n *node, path string, timeout time.Duration, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in := &hop.Request{Method: http.MethodGet, Path: path, Header: http.Header{problem.HeaderRequestID: {problem.RequestID(ctx)}}}
	var got collected
	if no := n.try(ctx, in, &got); no != nil {
		return no.err
	}
	if err := got.err(); err != nil {
		return err
	}
	if err := json.Unmarshal(got.body.Bytes(), into); err != nil {
		return fmt.Errorf("answer of node %s: %w", n.full, err)
	}
	return nil
}

const statusPath = "/internal/status"

// each asks all nodes at the same time.
func each[T any](nodes []*node, ask func(*node) T) []T {
	out := make([]T, len(nodes))
	var wait sync.WaitGroup
	for i, n := range nodes {
		wait.Go(func() { out[i] = ask(n) })
	}
	wait.Wait()
	return out
}

func (g *Gateway) probe(ctx context.Context, c *cell, n *node) nodeJSON {
	out := nodeJSON{Node: n.name, Address: n.address}
	var s nodeStatus
	err := g.askNode(ctx, n, statusPath, probeTimeout, &s)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.ServerID, out.Absent = s.ServerID, s.Absent
	out.DiskFree, out.DiskReserve, out.HasRoom = s.DiskFree, s.DiskReserve, s.HasRoom
	if m, found := s.member(n.name); found && m.ID == s.ServerID {
		out.Voter = m.Voter
	}
	out.Leader, out.Term, out.Applied, out.OpenTenants, out.Healthy = s.IsLeader, s.Term, s.Applied, s.OpenTenants, s.Ready
	switch {
	case s.DiskHangs:
		out.Healthy, out.Problem = false, "its disk hangs: a write has not returned for seconds; other nodes go on without it"
	case s.Cell != string(c.name) || s.Node != n.name:
		out.Healthy, out.Problem = false, fmt.Sprintf("it says that it is %s/%s", s.Cell, s.Node)
	case s.CellKey != c.key:
		out.Healthy, out.Problem = false, "it belongs to another cell of this name: its cell key is not the registered one"
	case !s.Ready:
		out.Problem = "it is not ready: it replays its log, or knows no leader"
	case !s.HasRoom && s.DiskReserve > 0:
		out.Problem = "its disk is full, or below the reserve: it takes on no writes; free space on it"
	}
	return out
}

// showCell asks a cell's nodes and renders what they and the directory say.
func (g *Gateway) showCell(ctx context.Context, from directory.Cell) (cellJSON, error) {
	c, err := g.cells.find(from.Name, true)
	if err != nil {
		return cellJSON{}, err
	}
	nodes := each(c.nodes, func(n *node) nodeJSON { return g.probe(ctx, c, n) })
	return cellJSON{Cell: from.Name, Key: from.Key, Region: from.Region, Tier: from.Tier, State: from.State, Tenants: from.Tenants,
		Capacity: from.Capacity, Nodes: nodes}, nil
}

func (g *Gateway) operatorListCells(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	all, err := g.dir.Cells(o.r.Context())
	if err := g.fresh(err); err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{}); err != nil {
		return err
	}
	out := listJSON[cellJSON]{Items: make([]cellJSON, 0, len(all))}
	for _, from := range all {
		c, err := g.showCell(o.r.Context(), from)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, c)
	}
	return o.answer(http.StatusOK, out, false)
}

// cellNamed is a registered cell with the number of its tenants.
func (g *Gateway) cellNamed(ctx context.Context, name string) (directory.Cell, error) {
	all, err := g.dir.Cells(ctx)
	if err := g.fresh(err); err != nil {
		return directory.Cell{}, err
	}
	for _, c := range all {
		if string(c.Name) == name {
			return c, nil
		}
	}
	return directory.Cell{}, fault.Unknown()
}

func (g *Gateway) operatorShowCell(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	from, err := g.cellNamed(o.r.Context(), o.vars["cell"])
	if err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{Subject: string(from.Name)}); err != nil {
		return err
	}
	out, err := g.showCell(o.r.Context(), from)
	if err != nil {
		return err
	}
	return o.answer(http.StatusOK, out, false)
}

// operatorPutCell registers a cell or changes what is known of it; what is left out
// stays as it is. The cell's key is not the operator's to type: the nodes are asked
// for it.
func (g *Gateway) operatorPutCell(o *operation) error {
	var in struct {
		Name     string            `json:"name"`
		Region   string            `json:"region"`
		Tier     string            `json:"tier"`
		State    string            `json:"state"`
		Capacity uint32            `json:"capacity"`
		Nodes    map[string]string `json:"nodes"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if !tenant.ValidID(in.Name) {
		return fault.New(fault.Invalid, "invalid-field", "name must be a letter and up to 31 letters, digits or hyphens").With("field", "name")
	}
	key, err := o.key(in.Name, in.Region, in.Tier, in.State, in.Capacity, in.Nodes)
	if err != nil {
		return err
	}
	have, err := g.cellNamed(o.r.Context(), in.Name)
	if err != nil && fault.Of(err) != fault.NotFound {
		return err
	}
	if in.Nodes == nil {
		in.Nodes = have.Nodes
	}
	defaultTo(&in.Region, have.Region)
	defaultTo(&in.Tier, have.Tier)
	defaultTo(&in.State, string(have.State))
	defaultTo(&in.Capacity, uint32(have.Capacity))
	switch {
	case len(in.Nodes) == 0 || len(in.Nodes) > maxNodes:
		return fault.New(fault.Invalid, "invalid-field", "nodes must name 1 to %d nodes", maxNodes).With("field", "nodes")
	}
	if err := firstOf(checkTier(in.Tier), body.Text("region", in.Region, maxRegion)); err != nil {
		return err
	}
	cellKey, region, err := g.keyOf(o.r.Context(), in.Name, in.Nodes)
	if err != nil {
		return err
	}
	if in.Region == "" {
		in.Region = region
	}
	replayed, err := g.dir.PutCell(o.r.Context(), o.by, key, directory.Cell{Name: tenant.CellName(in.Name), Key: cellKey, Region: in.Region, Tier: in.Tier,
		State: directory.CellState(in.State), Capacity: int(in.Capacity), Nodes: in.Nodes})
	if err != nil {
		return err
	}
	from, err := g.cellNamed(o.r.Context(), in.Name)
	if err != nil {
		return err
	}
	out, err := g.showCell(o.r.Context(), from)
	if err != nil {
		return err
	}
	return o.answer(http.StatusOK, out, replayed)
}

const maxNodes = 9

// keyOf asks the nodes that an operator named for their cell's key. One that
// answers is enough; two that disagree are an error.
func (g *Gateway) keyOf(ctx context.Context, cellName string, addresses map[string]string) (tenant.CellKey, string, error) {
	var nodes []*node
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		if !tenant.ValidID(name) {
			return "", "", fault.New(fault.Invalid, "invalid-field", "a node's name is a letter and up to 31 letters, digits or hyphens").With("field", "nodes")
		}
		n := g.cells.node(cellName, name, addresses[name])
		defer n.Close()
		nodes = append(nodes, n)
	}
	type heard struct {
		nodeStatus
		region string
		err    error
	}
	said := each(nodes, func(n *node) (h heard) {
		var s struct {
			nodeStatus
			Region string `json:"region"`
		}
		h.err = g.askNode(ctx, n, statusPath, probeTimeout, &s)
		h.nodeStatus, h.region = s.nodeStatus, s.Region
		return h
	})
	var key tenant.CellKey
	var region string
	var last error
	for i, h := range said {
		switch {
		case h.err != nil:
			last = fmt.Errorf("node %s: %w", nodes[i].full, h.err)
		case h.Cell != cellName || h.Node != nodes[i].name:
			return "", "", fault.New(fault.Conflict, "another-node", "the node at %s says that it is %s/%s", nodes[i].address, h.Cell, h.Node)
		case h.CellKey == "":
		case key != "" && key != h.CellKey:
			return "", "", fault.New(fault.Conflict, "cell-keys-differ", "the nodes belong to different cells of that name")
		default:
			key, region = h.CellKey, h.region
		}
	}
	if key == "" {
		return "", "", (&fault.Error{Kind: fault.Unavailable, Slug: "cell-unreachable", Detail: "no node of the cell says its cell key: they can't be reached, or have no leader yet; retry"}).
			After(time.Second).Because(last)
	}
	return key, region, nil
}
