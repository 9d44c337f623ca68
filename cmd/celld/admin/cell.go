package admin

import (
	"context"
	"fmt"
	"io"
	"net/url"
)

type cellCommand struct {
	List   cellList   `cmd:"" help:"All cells."`
	Show   cellShow   `cmd:"" help:"One cell and its nodes: leader, applied index, health."`
	Create cellCreate `cmd:"" help:"Make a running cell known to the gateways, or describe it anew: what is left out stays."`

	AddNode    cellAddNode    `cmd:"" name:"add-node" help:"Add a node that runs with join to a cell, and wait until it has caught up and has its vote."`
	RemoveNode cellRemoveNode `cmd:"" name:"remove-node" help:"Remove a node from a cell; its process ends by itself."`
}

type cellList struct{}

func (c *cellList) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error {
		return s.list(ctx, "/cells", nil, 0, column{"CELL", "cell"}, column{"REGION", "region"}, column{"TIER", "tier"},
			column{"STATE", "state"}, column{"TENANTS", "tenants"}, column{"CAPACITY", "capacity"})
	})
}

type cellShow struct {
	Cell string `arg:"" help:"The cell's name."`
}

func (c *cellShow) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error {
		var doc document
		if err := s.Get(ctx, "/cells/"+url.PathEscape(c.Cell), nil, &doc); err != nil {
			return named(err, "cell", c.Cell)
		}
		return s.showCell(doc)
	})
}

func (s *session) showCell(doc document) error {
	err := s.show(doc, column{"cell", "cell"}, column{"key", "key"}, column{"region", "region"}, column{"tier", "tier"},
		column{"state", "state"}, column{"tenants", "tenants"}, column{"capacity", "capacity"})
	nodes, ok := doc["nodes"].([]any)
	if err != nil || s.json || !ok {
		return err
	}
	if _, err := fmt.Fprintln(s.out); err != nil {
		return err
	}
	return printTable(s.out, nodes, []column{{"NODE", "node"}, {"ADDRESS", "address"}, {"HEALTHY", "healthy"},
		{"VOTER", "voter"}, {"LEADER", "leader"}, {"TERM", "term"}, {"APPLIED", "appliedIndex"}, {"OPEN TENANTS", "openTenants"},
		{"FREE BYTES", "diskFree"}, {"RESERVE BYTES", "diskReserve"}, {"PROBLEM", "problem"}})
}

type cellCreate struct {
	Cell     string            `arg:"" help:"The cell's name."`
	Nodes    map[string]string `name:"node" placeholder:"n1=ADDR;n2=ADDR" help:"Its nodes with their inner addresses; may be given several times. Required for a new cell."`
	Region   string            `help:"The region in which it stands; for a new cell what its nodes say if empty."`
	Tier     string            `enum:",pooled,dedicated" default:"" help:"pooled (what a new cell gets) or dedicated."`
	State    string            `enum:",active,draining" default:"" help:"active (what a new cell gets), or draining: it takes no new tenants."`
	Capacity int               `help:"How many tenants it takes (a new cell 10000)."`
}

func (c *cellCreate) Run(ctx context.Context, all *Command, out io.Writer) error {
	body := map[string]any{"name": c.Cell}
	if len(c.Nodes) > 0 {
		body["nodes"] = c.Nodes
	}
	setText(body, "region", c.Region)
	setText(body, "tier", c.Tier)
	setText(body, "state", c.State)
	if c.Capacity != 0 {
		body["capacity"] = number(c.Capacity)
	}
	return all.call(out, func(s *session) error {
		var doc document
		if err := s.Post(ctx, "/cells", body, &doc); err != nil {
			return err
		}
		return s.showCell(doc)
	})
}
