package platform

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"celld/cmd/celld/settings"
	"celld/raftfsm/mtls"
)

// plan is what every member of one start is told: addresses, identities and
// settings. It lies below DIR/run, which each start makes anew, CA and all.
type plan struct {
	run      string
	gateways []settings.Gateway
	nodes    []settings.Node
	ports    map[string]*port // by member: the inner port
	public   []*port
	admins   []*port
}

// certLife outlives any start that somebody may forget about.
const certLife = 5 * 365 * 24 * time.Hour

// release gives the addresses back.
func (pl *plan) release() error {
	var err error
	for _, p := range pl.ports {
		err = errors.Join(err, p.release())
	}
	for _, p := range append(pl.public, pl.admins...) {
		err = errors.Join(err, p.release())
	}
	return err
}

func newPlan(o Options, s state) (*plan, error) {
	pl := &plan{run: filepath.Join(o.Dir, "run"), ports: map[string]*port{}}
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
	common := settings.Common{LogLevel: strings.ToLower(o.Level.String()), StopWithin: settings.Duration(stopWithin), Election: settings.Duration(o.Election)}
	keys := map[string]string{}
	inner := map[string]string{}
	for i := range s.Gateways {
		name := "G" + strconv.Itoa(i+1)
		g := settings.Gateway{Name: name, Gateways: inner, OperatorTokenFile: OperatorTokenPath(o.Dir), ReadyFile: pl.readyFile(), Common: common}
		g.Data = filepath.Join(o.Dir, "gateways", name)
		if err := pl.member(ca, mtls.Gateway(name), name, &g.Common); err != nil {
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
	for _, cell := range s.Cells {
		addrs := map[string]string{}
		for i := range s.Replicas {
			name := "n" + strconv.Itoa(i+1)
			n := settings.Node{Cell: cell, Name: name, Region: region, Nodes: addrs, ContextKeys: keys, Common: common}
			n.Data = filepath.Join(o.Dir, "cells", cell, name)
			if err := pl.member(ca, mtls.Node(cell, name), cell+"/"+name, &n.Common); err != nil {
				return err
			}
			addrs[name] = n.Inner
			pl.nodes = append(pl.nodes, n)
		}
	}
	return nil
}

// member gives a member its inner address and its identity.
func (pl *plan) member(ca *mtls.CA, identity, name string, c *settings.Common) error {
	p, err := reserve("127.0.0.1:0")
	if err != nil {
		return err
	}
	pl.ports[name], c.Inner = p, p.addr
	pki, err := ca.Issue(identity, time.Now(), certLife)
	if err != nil {
		return err
	}
	c.Identity = filepath.Join(pl.run, filepath.FromSlash(name))
	return pki.Save(c.Identity)
}

// front gives the gateways their public and operator addresses: the first one
// those asked for, further ones the next free ones.
func (pl *plan) front(o Options) error {
	for i := range pl.gateways {
		public, err := next(o.HTTP, pl.public, "--http")
		if err != nil {
			return err
		}
		pl.public, pl.gateways[i].HTTP = append(pl.public, public), public.addr
		admin, err := next(o.Admin, pl.admins, "--admin")
		if err != nil {
			return err
		}
		pl.admins, pl.gateways[i].Admin = append(pl.admins, admin), admin.addr
	}
	return nil
}

// nextPorts is how many ports are tried for a further gateway.
const nextPorts = 200

// next holds addr if it is the first of its kind, or a free one after the last.
func next(addr string, before []*port, flag string) (*port, error) {
	if len(before) == 0 {
		p, err := reserve(addr)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w; choose another address with %s", flag, addr, err, flag)
		}
		if err := p.tryListen(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s %s: %w; choose another address with %s", flag, addr, err, flag), p.release())
		}
		return p, nil
	}
	host, service, err := net.SplitHostPort(before[len(before)-1].addr)
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
		p, err := reserve(net.JoinHostPort(host, strconv.Itoa(number)))
		if err != nil {
			continue
		}
		if err := p.tryListen(); err == nil {
			return p, nil
		}
		if err := p.release(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: no free port for a further gateway after %s", flag, before[len(before)-1].addr)
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
