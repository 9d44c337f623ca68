package main

import (
	"context"
	"errors"
	"time"

	"celld/cmd/celldbench/load"
	"celld/cmd/celldbench/report"
	"celld/cmd/celldbench/target"
)

// tenantsCommand measures a cell with more tenants than are active.
type tenantsCommand struct {
	Tenants     int           `default:"10000" help:"Tenants to make in one cell, each with an owner of its own (${default})."`
	Active      int           `default:"1000" help:"How many of them get content and load (${default})."`
	Invoices    int           `default:"5" help:"Invoices that each active tenant has before the first read (${default})."`
	Connections []int         `default:"64" help:"Numbers of connections, or of callers of raw Raft (${default})."`
	Rest        time.Duration `default:"5s" help:"How long the platform is watched while nobody asks for anything (${default})."`
	turns       `embed:""`
}

// Validate is called by the parser.
func (o *tenantsCommand) Validate() error {
	switch {
	case o.Tenants < 1 || o.Tenants > 15_000:
		return errors.New("--tenants is a number from 1 to 15000")
	case o.Active < 1 || o.Active > o.Tenants || o.Invoices < 1:
		return errors.New("--active is a number from 1 to that of tenants, --invoices at least 1")
	case o.Rest <= 0:
		return errors.New("--rest is positive")
	}
	return errors.Join(checkConnections(o.Connections...), o.turns.Validate())
}

func (o *tenantsCommand) play(ctx context.Context, b *bench) error {
	s := target.Shape{Tenants: o.Tenants, Active: o.Active, Cells: 1, Customers: 1, Invoices: o.Invoices}
	if err := b.make(ctx, s); err != nil {
		return err
	}
	b.rep.Note("%d tenants in one cell of %d replicas, %d of them active, with %d invoices each", o.Tenants, b.Replicas, o.Active, o.Invoices)
	b.rep.Note("memory and descriptors: of all processes together, this one with its load generator too; under load the most of what was seen each %d ms", target.WatchEvery.Milliseconds())
	if b.OpenFiles != 0 {
		b.rep.Note("each process may have %d open files", b.OpenFiles)
	}
	b.say("restarting the platform")
	stop, start, err := b.platform.Restart(ctx)
	if err != nil {
		return err
	}
	b.rep.Tell(stop.Seconds(), "s", "stop of the platform")
	b.rep.Tell(start.Seconds(), "s", "start to ready with %d tenants", o.Tenants)
	if err := o.rest(ctx, b); err != nil {
		return err
	}
	if err := o.firstReads(ctx, b); err != nil {
		return err
	}
	end := b.platform.Watch()
	err = o.take(ctx, b, o.Connections)
	most, errWatch := end()
	if err := errors.Join(err, errWatch); err != nil {
		return err
	}
	held(b.rep, "at most under load", most)
	return nil
}

// rest measures what the platform needs while nobody asks for anything.
func (o *tenantsCommand) rest(ctx context.Context, b *bench) error {
	b.say("watching it at rest for %v", o.Rest)
	now, err := b.platform.AtRest()
	if err != nil {
		return err
	}
	held(b.rep, "at rest", now)
	end, err := b.platform.Meter("rest", o.Rest).Begin()
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(o.Rest):
	}
	elapsed := time.Since(began)
	used, err := end()
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		return err
	}
	b.rep.Tell(100*used.Own.Seconds()/elapsed.Seconds(), "% of a core", "CPU at rest")
	return nil
}

// firstReads reads from every active tenant once, while none of them is open.
func (o *tenantsCommand) firstReads(ctx context.Context, b *bench) error {
	b.say("reading once from each active tenant")
	const connections = 16
	callers := b.tenants.Sweepers(connections)
	r, err := load.Count(ctx, callers, o.Active)
	if err := errors.Join(err, load.CloseAll(callers)); err != nil {
		return err
	}
	l := report.NewLine("", "first reads of active tenants", r)
	l.Connections = connections
	b.rep.Lines = append(b.rep.Lines, l)
	return nil
}

// held tells what processes hold.
func held(rep *report.Report, when string, f target.Footprint) {
	const mib = 1 << 20
	rep.Tell(float64(f.Resident)/mib, "MiB", "%s: resident memory", when)
	rep.Tell(float64(f.Anonymous)/mib, "MiB", "%s: of which no file's", when)
	if f.Heap > 0 {
		rep.Tell(float64(f.Heap)/mib, "MiB", "%s: of which Go's heap, garbage included", when)
	}
	rep.Tell(float64(f.Files), "descriptors", "%s: open", when)
	if f.MostFiles != f.Files {
		rep.Tell(float64(f.MostFiles), "descriptors", "%s: open in one process", when)
	}
}
