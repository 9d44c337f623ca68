package nodetest

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"celld/gateway/identity"
	"celld/node"
	"celld/node/api"
)

// Join starts a node that did not form the cell, on the address of who had its name
// before. It waits to be added. None of the other nodes has a new name in its
// settings.
func (c *Cluster) Join(name string) {
	c.t.Helper()
	address := c.Address(name)
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	c.check(err)
	c.mu.Lock()
	c.addrs[name] = l.Addr().String()
	c.mu.Unlock()
	c.open(name, l, node.Config{Join: true})
}

// Wipe loses a stopped node's data.
func (c *Cluster) Wipe(name string) {
	c.t.Helper()
	c.check(os.RemoveAll(filepath.Join(c.dir, name)))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.formed, name)
}

// operator signs for an operator.
func (c *Cluster) operator() string {
	c.t.Helper()
	return c.Sign(identity.Context{Cell: c.Cell, CellKey: c.Key(), Act: identity.ByOperator, Actor: "operator:test"})
}

// Add asks the cell to add a running node.
func (c *Cluster) Add(name string) Answer {
	c.t.Helper()
	return c.AddAs(api.NewMember{Node: name, ServerID: c.Node(name).Group().ID(), Address: c.Address(name)})
}

// AddAs asks the cell to add what m says.
func (c *Cluster) AddAs(m api.NewMember) Answer {
	c.t.Helper()
	b, err := json.Marshal(m)
	c.check(err)
	return c.Do(c.operator(), Request{Method: http.MethodPost, Path: "/internal/members", Body: string(b)})
}

// Remove asks the cell to remove a node.
func (c *Cluster) Remove(name string) Answer {
	c.t.Helper()
	return c.Do(c.operator(), Request{Method: http.MethodPost, Path: "/internal/members/" + name + "/remove"})
}

// Status is what a node says about itself.
func (c *Cluster) Status(name string) api.Status {
	c.t.Helper()
	s, err := c.Node(name).Status()
	c.check(err)
	return s
}

// AwaitVoter waits until the leader's configuration, for good, has name as a voter.
func (c *Cluster) AwaitVoter(name string) {
	c.t.Helper()
	c.await(name+"'s vote", func() bool {
		s := c.Status(c.Leader())
		for _, m := range s.Members {
			if m.Node == name {
				return m.Voter && s.MembersCommitted
			}
		}
		return false
	})
}

// AwaitRemoved waits until a node says that it was removed, and closes it.
func (c *Cluster) AwaitRemoved(name string) *node.Removed {
	c.t.Helper()
	var err error
	c.await(name+" to notice that it was removed", func() bool {
		select {
		case err = <-c.Node(name).Failed():
			return true
		default:
			return false
		}
	})
	var removed *node.Removed
	if !errors.As(err, &removed) {
		c.t.Fatalf("%s failed: %v", name, err)
	}
	c.Stop(name)
	return removed
}
