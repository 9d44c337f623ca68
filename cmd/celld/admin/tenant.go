package admin

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"celld/cmd/celld/client"
)

type tenantCommand struct {
	List    tenantList    `cmd:"" help:"All tenants."`
	Show    tenantShow    `cmd:"" help:"One tenant."`
	Create  tenantCreate  `cmd:"" help:"Create a tenant."`
	Suspend tenantSuspend `cmd:"" help:"Refuse a tenant's users until it is resumed."`
	Resume  tenantResume  `cmd:"" help:"Let a suspended tenant's users in again."`
	Verify  tenantVerify  `cmd:"" help:"Compare the content of a tenant's replicas at one log entry."`
}

func tenantColumns() []column {
	return []column{
		{"TENANT", "tenantId"}, {"NAME", "name"}, {"CELL", "cell"}, {"EPOCH", "epoch"}, {"STATE", "state"},
		{"SUSPENDED", "suspended"}, {"REGION", "region"}, {"TIER", "tier"}, {"CREATED", "createdAt"},
	}
}

func tenantFields() []column {
	return []column{
		{"tenant", "tenantId"}, {"name", "name"}, {"uid", "uid"}, {"cell", "cell"}, {"epoch", "epoch"}, {"state", "state"},
		{"suspended", "suspended"}, {"region", "region"}, {"tier", "tier"}, {"owners", "owners"}, {"members", "members"},
		{"created", "createdAt"}, {"changed", "changedAt"},
	}
}

type tenantList struct{}

func (c *tenantList) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error { return s.list(ctx, "/tenants", nil, 0, tenantColumns()...) })
}

// oneTenant is the argument of every verb about one tenant.
type oneTenant struct {
	Tenant string `arg:"" help:"The tenant's id."`
}

func (o *oneTenant) path(verb string) string { return "/tenants/" + url.PathEscape(o.Tenant) + verb }

func (o *oneTenant) show(ctx context.Context, s *session) error {
	var doc document
	if err := s.Get(ctx, o.path(""), nil, &doc); err != nil {
		return named(err, "tenant", o.Tenant)
	}
	return s.show(doc, tenantFields()...)
}

type tenantShow struct{ oneTenant }

func (c *tenantShow) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error { return c.show(ctx, s) })
}

type tenantCreate struct {
	ID     string `name:"id" placeholder:"T9" help:"The tenant's id; one is made if empty."`
	Name   string `required:"" help:"The tenant's name."`
	Owner  string `required:"" placeholder:"U7" help:"The user who becomes its owner."`
	Cell   string `placeholder:"C2" help:"The cell to place it in; the least loaded one of the region if empty."`
	Region string `help:"The region to place it in; any if empty."`
	Tier   string `enum:",pooled,dedicated" default:"" help:"pooled or dedicated."`
}

func (c *tenantCreate) Run(ctx context.Context, all *Command, out io.Writer) error {
	body := map[string]any{"name": c.Name, "owner": c.Owner}
	setText(body, "tenantId", c.ID)
	setText(body, "cell", c.Cell)
	setText(body, "region", c.Region)
	setText(body, "tier", c.Tier)
	return all.call(out, func(s *session) error {
		var doc document
		if err := s.Post(ctx, "/tenants", body, &doc); err != nil {
			return err
		}
		return s.show(doc, tenantFields()...)
	})
}

type tenantSuspend struct{ oneTenant }

func (c *tenantSuspend) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error { return c.switchTo(ctx, s, "/suspend") })
}

type tenantResume struct{ oneTenant }

func (c *tenantResume) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error { return c.switchTo(ctx, s, "/resume") })
}

// switchTo does the verb and shows the tenant as it stands after it.
func (o *oneTenant) switchTo(ctx context.Context, s *session, verb string) error {
	if err := s.Do(ctx, client.Call{Method: http.MethodPost, Path: o.path(verb)}); err != nil {
		return named(err, "tenant", o.Tenant)
	}
	return o.show(ctx, s)
}
