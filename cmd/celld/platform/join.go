package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"celld/cmd/celld/client"
	"celld/gateway/problem"
	"celld/store/fault"
)

// reachable is the address under which a listener on this machine is called.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// capacity is how many tenants a cell of a platform on one machine takes: more than
// a cell is built for, so that what becomes of it beyond that can be tried out.
const capacity = 20_000

// join waits until the directory works and the cells have leaders, and tells the
// gateways where the cells' nodes are this time.
func (p *Platform) join(ctx context.Context) error {
	if err := p.awaitGateways(ctx, p.adminURLs(), "/healthz"); err != nil {
		return err
	}
	if err := p.front(); err != nil {
		return err
	}
	for _, cell := range p.state.Cells {
		if err := p.register(ctx, cell); err != nil {
			return err
		}
		if err := p.await(ctx, "a leader of cell "+cell, func(ctx context.Context) error { return p.led(ctx, cell) }); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.state.Formed = true
	p.mu.Unlock()
	return p.saveState()
}

// register makes a cell known. What the gateway refuses for good ends the wait.
func (p *Platform) register(ctx context.Context, cell string) error {
	body := map[string]any{"name": cell, "region": region, "tier": "pooled", "capacity": capacity, "nodes": p.plan.addresses(cell)}
	var refused error
	err := p.await(ctx, "cell "+cell, func(ctx context.Context) error {
		err := p.admin.Once(ctx, client.Call{Method: http.MethodPost, Path: "/cells", Body: body})
		if err == nil {
			return nil
		}
		if status := problem.Status(fault.Of(err)); status < http.StatusInternalServerError && status != http.StatusTooManyRequests {
			refused = fmt.Errorf("the gateway refuses the cell %s: %w; do %s and %s come from the same platform?",
				cell, err, filepath.Join(p.dir, "cells", cell), filepath.Join(p.dir, "gateways"))
			return nil
		}
		return err
	})
	return errors.Join(refused, err)
}

func (p *Platform) adminURLs() []string {
	var urls []string
	for _, a := range p.plan.admins {
		urls = append(urls, "http://"+reachable(a.Addr()))
	}
	return urls
}

// led reports whether a cell has a leader and all its nodes that run answer.
func (p *Platform) led(ctx context.Context, cell string) error {
	var doc struct {
		Nodes []struct {
			Node    string `json:"node"`
			Leader  bool   `json:"leader"`
			Healthy bool   `json:"healthy"`
		} `json:"nodes"`
	}
	if err := p.admin.Once(ctx, client.Call{Method: http.MethodGet, Path: "/cells/" + cell, Into: &doc}); err != nil {
		return err
	}
	led := false
	for _, n := range doc.Nodes {
		if !n.Healthy && p.outages.of(cell+"/"+n.Node) == nil {
			return fmt.Errorf("node %s is not healthy yet", n.Node)
		}
		led = led || n.Leader
	}
	if !led {
		return errors.New("no node leads yet")
	}
	return nil
}

// settle sees to the users that the credentials name, and writes the credentials.
func (p *Platform) settle(ctx context.Context) error {
	var err error
	switch {
	case p.options.Fixture:
		if p.state.Fixture == nil || !p.state.Fixture.Loaded {
			p.options.Progress("loading the fixture")
		}
		err = p.loadFixture(ctx)
	case p.state.Fixture == nil && !p.state.Welcomed:
		err = p.welcome(ctx)
	}
	if err != nil {
		return err
	}
	return p.saveCredentials()
}

// welcome makes the user and the tenant with which a new platform is tried out.
func (p *Platform) welcome(ctx context.Context) error {
	if err := p.ensureUser(ctx, "U1", "u1@example.com", "First user"); err != nil {
		return err
	}
	if err := p.ensureTenant(ctx, "T1", "First tenant", "U1", ""); err != nil {
		return err
	}
	p.state.Welcomed = true
	return p.saveState()
}
