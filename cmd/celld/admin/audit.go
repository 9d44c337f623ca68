package admin

import (
	"context"
	"io"
	"net/url"
)

type auditCommand struct {
	List auditList `cmd:"" help:"What operators and members did, newest first."`
}

type auditList struct {
	Tenant string `placeholder:"T7" help:"Only entries about this tenant."`
	Actor  string `help:"Only entries of this actor."`
	Limit  int    `default:"100" help:"How many entries at the most (default ${default})."`
}

func (c *auditList) Run(ctx context.Context, all *Command, out io.Writer) error {
	query := url.Values{}
	for name, value := range map[string]string{"tenant": c.Tenant, "actor": c.Actor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return all.call(out, func(s *session) error {
		return s.list(ctx, "/audit", query, c.Limit, column{"AT", "at"}, column{"ACTOR", "actor"}, column{"ACTION", "action"},
			column{"TENANT", "tenantId"}, column{"SUBJECT", "subject"}, column{"DETAIL", "detail"})
	})
}
