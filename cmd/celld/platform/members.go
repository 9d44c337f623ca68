package platform

import (
	"context"

	"celld/cmd/celld/settings"
)

// makeMembers makes the members of the plan, none of them running yet.
func (p *Platform) makeMembers() error {
	if !p.options.Isolate {
		var err error
		if p.roles, err = newRoles(p); err != nil {
			return err
		}
	}
	for _, g := range p.plan.gateways {
		launch := func(ctx context.Context) (instance, error) { return p.roles.gateway(ctx, g) }
		if p.options.Isolate {
			config, err := p.plan.write(g.Name, g)
			if err != nil {
				return err
			}
			launch = p.child("gateway", config)
		}
		p.gateways = append(p.gateways, p.member(g.Name, launch))
	}
	for _, n := range p.plan.nodes {
		m, err := p.node(n)
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, m)
	}
	return nil
}

// node makes the member for a node's settings.
func (p *Platform) node(n settings.Node) (*Member, error) {
	name := n.Cell + "/" + n.Name
	launch := func(ctx context.Context) (instance, error) { return p.roles.node(ctx, n) }
	if p.options.Isolate {
		config, err := p.plan.write(name, n)
		if err != nil {
			return nil, err
		}
		launch = p.child("node", config)
	}
	return p.member(name, launch), nil
}

func (p *Platform) member(name string, launch func(context.Context) (instance, error)) *Member {
	return &Member{
		name: name, launch: launch, isolated: p.options.Isolate, persist: !p.forming(), logger: p.logger,
		changed: p.savePIDs, onEnd: p.ended, onRemoved: p.removed,
	}
}

// child launches a role as a child process with the settings in config.
func (p *Platform) child(role, config string) func(context.Context) (instance, error) {
	return func(context.Context) (instance, error) {
		args := []string{role, "--config", config, "--until-stdin-ends"}
		if p.forming() {
			args = append(args, "--init")
		}
		return spawn(p.options.Binary, args, p.options.Log)
	}
}

// forming reports whether the groups have yet to be formed.
func (p *Platform) forming() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.state.Formed
}
