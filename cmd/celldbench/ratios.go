package main

import (
	"context"
	"errors"

	"celld/cmd/celldbench/target"
)

// ratiosCommand measures reads and writes against what the machine does at best.
type ratiosCommand struct {
	Tenants     int   `default:"100" help:"Tenants to make, each with an owner of its own (${default})."`
	Cells       int   `default:"1" help:"Over how many of the two cells the tenants are spread (${default}, since the baseline of writes is one Raft group)."`
	Invoices    int   `default:"20" help:"Invoices that each tenant has before the first read (${default})."`
	Connections []int `default:"1,64,256" help:"Numbers of connections, or of callers of raw Raft (${default})."`
	turns       `embed:""`
}

// Validate is called by the parser.
func (o *ratiosCommand) Validate() error {
	switch {
	case o.Tenants < 1 || o.Tenants > 10_000:
		return errors.New("--tenants is a number from 1 to 10000")
	case o.Cells < 1 || o.Cells > 2:
		return errors.New("--cells is 1 or 2")
	case o.Invoices < 1:
		return errors.New("--invoices is at least 1")
	}
	return errors.Join(checkConnections(o.Connections...), o.turns.Validate())
}

func (o *ratiosCommand) play(ctx context.Context, b *bench) error {
	s := target.Shape{Tenants: o.Tenants, Active: o.Tenants, Cells: o.Cells, Customers: 1, Invoices: o.Invoices}
	if err := b.make(ctx, s); err != nil {
		return err
	}
	b.rep.Note("%d tenants over %d of the platform's two cells, %d replicas a cell, %d invoices each", o.Tenants, o.Cells, b.Replicas, o.Invoices)
	return o.take(ctx, b, o.Connections)
}
