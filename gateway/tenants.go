package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// errProvisioning is a tenant whose file is still being made. Whoever asked for
// the tenant may ask again under the same key; the directory's leader finishes
// it in any case.
var errProvisioning = (&fault.Error{Kind: fault.Unavailable, Slug: "tenant-provisioning", Detail: "the tenant is still being set up; retry"}).After(time.Second)

func (g *Gateway) getTenant(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	t, err := g.dir.Tenant(r.Context(), x.tenant())
	if err := firstOf(err, g.dir.Fresh()); err != nil {
		return err
	}
	p := t.Placement
	return x.answer(tenantJSON{TenantID: p.Tenant, Name: t.Name, Role: x.access.Role.String(), Region: p.Region, Tier: p.Tier, State: p.State,
		CreatedAt: formatTime(t.CreatedAt)}, false)
}

func (g *Gateway) createTenant(x *exchange, r *http.Request) error {
	var in struct {
		Name   string `json:"name"`
		Region string `json:"region"`
		Tier   string `json:"tier"`
	}
	if err := decode(x, r, &in); err != nil {
		return err
	}
	if err := firstOf(text("name", in.Name, maxName), body.Text("region", in.Region, maxRegion), checkTier(in.Tier)); err != nil {
		return err
	}
	key, err := x.key(r, in.Name, in.Region, in.Tier)
	if err != nil {
		return err
	}
	p, replayed, err := g.foundTenant(problem.ContextWithRequestID(r.Context(), x.requestID), x.by(), key,
		directory.NewTenant{Name: in.Name, Owner: x.caller.User, Region: in.Region, Tier: in.Tier})
	x.access = directory.Access{Placement: p}
	if err != nil {
		return err
	}
	// A replay shows what is: its founder may have another role by now, or none.
	access, err := g.dir.AccessStale(x.caller.User, string(p.Tenant))
	if err != nil {
		return err
	}
	t, err := g.dir.Tenant(r.Context(), p.Tenant)
	if err != nil {
		return err
	}
	return x.answer(tenantJSON{TenantID: p.Tenant, Name: t.Name, Role: access.Role.String(), Region: p.Region, Tier: p.Tier, State: tenant.Placed,
		CreatedAt: formatTime(t.CreatedAt)}, replayed)
}

func checkTier(tier string) error {
	switch tier {
	case "", "pooled", "dedicated":
		return nil
	}
	return fault.New(fault.Invalid, "invalid-field", "tier must be pooled or dedicated").With("field", "tier")
}

// foundTenant is a saga in three steps: the directory reserves id, uid, cell and
// epoch; the cell makes the file; the directory marks the tenant active. Each step
// may be repeated. Whatever stops it half-way, a repetition under the same key
// finishes it, and so does resume.
func (g *Gateway) foundTenant(ctx context.Context, by directory.Actor, key *raftfsm.Key, in directory.NewTenant) (tenant.Placement, bool, error) {
	p, replayed, err := g.dir.CreateTenant(ctx, by, key, in)
	if err != nil {
		return tenant.Placement{}, false, err
	}
	if err := g.provision(ctx, p); err != nil {
		if fault.Of(err) == fault.Unavailable {
			return p, false, errProvisioning.Because(err)
		}
		return p, false, err
	}
	return p, replayed, nil
}

// provision is the saga's second and third step.
func (g *Gateway) provision(ctx context.Context, p tenant.Placement) error {
	in := &hop.Request{Method: http.MethodPut, Path: "/internal/tenants/" + string(p.UID), Header: http.Header{
		problem.HeaderRequestID: {problem.RequestID(ctx)},
		headerIdempotency:       {"provision-" + strconv.FormatUint(uint64(p.Epoch), 10)},
	}}
	t := &task{inner: in, target: func(again bool) (*cell, identity.Context, error) {
		c, err := g.cells.find(p.Cell, again)
		if err != nil {
			return nil, identity.Context{}, err
		}
		return c, provisionContext(g.cfg.Name, p, c), nil
	}}
	var got collected
	if err := g.ask(ctx, t, &got); err != nil {
		return err
	}
	if err := got.err(); err != nil {
		return err
	}
	err := g.dir.ActivateTenant(ctx, p.UID, p.Epoch)
	if errors.Is(err, fault.New(fault.Conflict, "placement-changed", "")) {
		return nil // it has gone on since: a replay of an old answer
	}
	return err
}

const (
	resumeEvery = 2 * time.Second
	resumeAfter = 10 * time.Second // by then whoever began has given up
)

// resume finishes tenants that a crash left half made, as long as ctx lives. Only
// the directory's leader does, so that it is done once.
func (g *Gateway) resume(ctx context.Context) {
	ticker := time.NewTicker(resumeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.resumeOnce(ctx, g.cfg.Clock().Add(-resumeAfter))
		}
	}
}

// resumeOnce finishes what was begun before a time.
func (g *Gateway) resumeOnce(ctx context.Context, before time.Time) {
	if !g.dir.IsLeader() || g.dir.Fresh() != nil {
		return
	}
	waiting, err := g.dir.Provisioning(ctx)
	if err != nil {
		g.cfg.Logger.Warn("cannot list tenants being set up", "error", err)
		return
	}
	for _, p := range waiting {
		if p.ChangedAt > before.UnixMicro() {
			continue
		}
		if err := g.provision(ctx, p); err != nil {
			g.cfg.Logger.Warn("cannot finish setting up a tenant", "tenant", p.Tenant, "cell", p.Cell, "epoch", p.Epoch, "error", err)
			if ctx.Err() != nil {
				return
			}
		}
	}
}
