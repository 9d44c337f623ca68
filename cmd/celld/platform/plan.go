package platform

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"celld/cmd/celld/platform/port"
	"celld/cmd/celld/settings"
	"celld/raftfsm/mtls"
)

// plan is what every member of one start is told: addresses, identities and
// settings. It lies below DIR/run, which each start makes anew, CA and all.
type plan struct {
	run      string
	gateways []settings.Gateway
	nodes    []settings.Node
	ports    map[string]*port.Port // by member: the inner port
	public   []*port.Port
	admins   []*port.Port

	ca     *mtls.CA
	keys   map[string]string // of the gateways' contexts
	common settings.Common
	// profilers are the addresses of the members' profiles; none without
	// Options.Profiles.
	profilers map[string]*port.Port
}

// diskReserve is small, so that a laptop's disk may be nearly full.
const diskReserve = 64 << 20

// certLife outlives any start that somebody may forget about.
const certLife = 5 * 365 * 24 * time.Hour

// release gives the addresses back.
func (pl *plan) release() error {
	var err error
	for _, p := range pl.ports {
		err = errors.Join(err, p.Release())
	}
	for _, p := range append(pl.public, pl.admins...) {
		err = errors.Join(err, p.Release())
	}
	for _, p := range pl.profilers {
		err = errors.Join(err, p.Release())
	}
	return err
}

func newPlan(o Options, s state) (*plan, error) {
	pl := &plan{run: filepath.Join(o.Dir, "run"), ports: map[string]*port.Port{}, profilers: map[string]*port.Port{}}
	err := pl.fill(o, s)
	if err != nil {
		return nil, errors.Join(err, pl.release())
	}
	return pl, nil
}

func (pl *plan) fill(o Options, s state) error {
	if err := os.RemoveAll(pl.run); err != nil {
		return err
	}
	if err := makeDir(pl.run); err != nil {
		return err
	}
	ca, err := mtls.NewCA(time.Now(), certLife)
	if err != nil {
		return err
	}
	common := settings.Common{LogLevel: strings.ToLower(o.Level.String()), StopWithin: settings.Duration(stopWithin), Election: settings.Duration(o.Election), DiskReserve: diskReserve, LogEntries: o.LogEntries}
	keys := map[string]string{}
	inner := map[string]string{}
	for i := range s.Gateways {
		name := "G" + strconv.Itoa(i+1)
		g := settings.Gateway{Name: name, Gateways: inner, OperatorTokenFile: OperatorTokenPath(o.Dir), ReadyFile: pl.readyFile(),
			RequestLog: settings.DefaultRequestLog, SlowRequest: settings.DefaultSlowRequest, Common: common}
		g.Data = filepath.Join(o.Dir, "gateways", name)
		if err := pl.member(ca, mtls.Gateway(name), name, &g.Common); err != nil {
			return err
		}
		if err := pl.profiler(o, name, &g.Common); err != nil {
			return err
		}
		if err := settings.NewContextKey(g.Identity); err != nil {
			return err
		}
		keys[name], inner[name] = filepath.Join(g.Identity, settings.ContextPublicFile), g.Inner
		pl.gateways = append(pl.gateways, g)
	}
	if err := pl.front(o); err != nil {
		return err
	}
	pl.ca, pl.keys, pl.common = ca, keys, common
	for _, cell := range s.Cells {
		addrs := map[string]string{}
		names, joined := s.nodes(cell)
		for _, name := range names {
			n, err := pl.node(o, cell, name, addrs)
			if err != nil {
				return err
			}
			n.Join = joined[name]
			addrs[name] = n.Inner
			pl.nodes = append(pl.nodes, n)
		}
	}
	return nil
}

// node makes the settings of a node; addrs are the addresses of its cell.
func (pl *plan) node(o Options, cell, name string, addrs map[string]string) (settings.Node, error) {
	n := settings.Node{Cell: cell, Name: name, Region: region, Nodes: addrs, ContextKeys: pl.keys, CacheMib: settings.DefaultCacheMib, Common: pl.common}
	n.Data = filepath.Join(o.Dir, "cells", cell, name)
	if err := pl.member(pl.ca, mtls.Node(cell, name), cell+"/"+name, &n.Common); err != nil {
		return n, err
	}
	return n, pl.profiler(o, cell+"/"+name, &n.Common)
}

// member gives a member its inner address and its identity.
func (pl *plan) member(ca *mtls.CA, identity, name string, c *settings.Common) error {
	if pl.ports[name] == nil { // else it was a node's that has been removed
		p, err := port.Reserve("127.0.0.1:0")
		if err != nil {
			return err
		}
		pl.ports[name] = p
	}
	c.Inner = pl.ports[name].Addr()
	pki, err := ca.Issue(identity, time.Now(), certLife)
	if err != nil {
		return err
	}
	c.Identity = filepath.Join(pl.run, filepath.FromSlash(name))
	return pki.Save(c.Identity)
}

// profiler gives a member that is a process of its own an address for its profiles.
func (pl *plan) profiler(o Options, name string, c *settings.Common) error {
	if !o.Profiles || !o.Isolate {
		return nil
	}
	p, err := port.Reserve("127.0.0.1:0")
	if err != nil {
		return err
	}
	pl.profilers[name], c.Pprof = p, p.Addr()
	return nil
}

// front gives the gateways their public and operator addresses: the first one
// those asked for, further ones the next free ones.
func (pl *plan) front(o Options) error {
	for i := range pl.gateways {
		public, err := pl.next(o.HTTP, pl.public, "--http")
		if err != nil {
			return err
		}
		pl.public, pl.gateways[i].HTTP = append(pl.public, public), public.Addr()
		admin, err := pl.next(o.Admin, pl.admins, "--admin")
		if err != nil {
			return err
		}
		pl.admins, pl.gateways[i].Admin = append(pl.admins, admin), admin.Addr()
	}
	return nil
}

// nextPorts is how many ports are tried for a further gateway.
const nextPorts = 200

// next holds addr if it is the first of its kind, or a free one after the last.
func (pl *plan) next(addr string, before []*port.Port, flag string) (*port.Port, error) {
	if len(before) == 0 {
		p, err := port.Reserve(addr)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w; choose another address with %s", flag, addr, err, flag)
		}
		if err := p.TryListen(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s %s: %w; choose another address with %s", flag, addr, err, flag), p.Release())
		}
		return p, nil
	}
	host, service, err := net.SplitHostPort(before[len(before)-1].Addr())
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(service)
	if err != nil {
		return nil, err
	}
	for range nextPorts {
		if number++; number > 65535 {
			break
		}
		if pl.holds(number) {
			continue
		}
		p, err := port.Reserve(net.JoinHostPort(host, strconv.Itoa(number)))
		if err != nil {
			continue
		}
		if err := p.TryListen(); err == nil {
			return p, nil
		}
		if err := p.Release(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: no free port for a further gateway after %s", flag, before[len(before)-1].Addr())
}

// holds tells whether a member has this port: until it listens there, the port
// could be held once more.
func (pl *plan) holds(number int) bool {
	end := ":" + strconv.Itoa(number)
	for _, p := range slices.Concat(pl.public, pl.admins, slices.Collect(maps.Values(pl.ports)), slices.Collect(maps.Values(pl.profilers))) {
		if strings.HasSuffix(p.Addr(), end) {
			return true
		}
	}
	return false
}

func (pl *plan) readyFile() string { return filepath.Join(pl.run, "ready") }

// openGate lets /readyz answer 200.
func (pl *plan) openGate() error { return writeFile(pl.readyFile(), nil) }

// write puts a member's settings where its child process reads them.
func (pl *plan) write(name string, s any) (string, error) {
	path := filepath.Join(pl.run, filepath.FromSlash(name), "config.json")
	return path, writeJSON(path, s)
}

// addresses are the inner addresses of a cell's nodes.
func (pl *plan) addresses(cell string) map[string]string {
	for _, n := range pl.nodes {
		if n.Cell == cell {
			return maps.Clone(n.Nodes)
		}
	}
	return nil
}
