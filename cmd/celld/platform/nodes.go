package platform

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"celld/cmd/celld/client"
)

// AddNode starts a further node of a cell and has the cell add it. It returns when
// the node has its vote. Later starts include it. A node that lost its data may come
// back so once it was removed.
func (p *Platform) AddNode(ctx context.Context, cell, name string) error {
	full := cell + "/" + name
	before := p.Member(full)
	if before != nil && !p.isGone(full) {
		return fmt.Errorf("the platform has a node %s", full)
	}
	if before != nil {
		if err := before.Stop(ctx); err != nil {
			return err
		}
	}
	addrs := p.plan.addresses(cell)
	if addrs == nil {
		return fmt.Errorf("the platform has no cell %s", cell)
	}
	delete(addrs, name)
	n, err := p.plan.node(p.options, cell, name, addrs)
	if err != nil {
		return err
	}
	n.Join, addrs[name] = true, n.Inner
	m, err := p.node(n)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.state.Joined = append(without(p.state.Joined, full), full)
	p.state.Removed = without(p.state.Removed, full)
	p.nodes = append(slices.DeleteFunc(p.nodes, func(m *Member) bool { return m.name == full }), m)
	p.mu.Unlock()
	if err := p.saveState(); err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	body := map[string]any{"node": name, "address": n.Inner, "wait": true}
	for {
		var change struct {
			State string `json:"state"`
		}
		if err := p.admin.Do(ctx, client.Call{Method: http.MethodPost, Path: "/cells/" + cell + "/nodes", Body: body, Into: &change}); err != nil {
			return fmt.Errorf("add %s: %w", full, err)
		}
		if change.State == "voter" {
			return nil
		}
	}
}

// RemoveNode has a cell remove a node. Its member ends by itself and stays down.
func (p *Platform) RemoveNode(ctx context.Context, cell, name string) error {
	call := client.Call{Method: http.MethodPost, Path: "/cells/" + cell + "/nodes/" + name + "/remove", Body: map[string]any{}}
	if err := p.admin.Do(ctx, call); err != nil {
		return fmt.Errorf("remove %s/%s: %w", cell, name, err)
	}
	return nil
}

// removed sees to a node that its cell has removed: no later start includes it.
func (p *Platform) removed(name string, err error) {
	p.options.Progress(fmt.Sprintf("%s was removed from its cell and stays down; its data in %s is no longer needed", name, p.folder(name)))
	p.logger.Info("a node was removed", "node", name, "reason", strings.ReplaceAll(err.Error(), "\n", "; "))
	p.mu.Lock()
	p.state.Joined = without(p.state.Joined, name)
	p.state.Removed = append(without(p.state.Removed, name), name)
	p.mu.Unlock()
	if err := p.saveState(); err != nil {
		p.logger.Error("record a node's removal", "node", name, "error", err)
	}
}

// isGone reports whether a node's cell has removed it.
func (p *Platform) isGone(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.state.Removed, name)
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(have string) bool { return have == name })
}
