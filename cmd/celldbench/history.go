package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"celld/cmd/celldbench/load"
	"celld/cmd/celldbench/report"
	"celld/cmd/celldbench/target"
)

// historyCommand measures requests to one tenant as it grows.
type historyCommand struct {
	Sizes       []uint64      `default:"1000,10000,100000,1000000" help:"Invoices of the tenant, rising (${default})."`
	Customers   int           `default:"20" help:"Its customers, among whom the invoices are spread (${default}): so few that each has a full page at the smallest size."`
	Connections int           `default:"32" help:"Connections that measure (${default})."`
	Loaders     int           `default:"192" help:"Connections that write invoices until there are enough (${default})."`
	Duration    time.Duration `default:"3s" help:"How long each kind of request is measured at each size (${default})."`
	Warmup      time.Duration `default:"500ms" help:"Load before it that is not counted (${default})."`
}

// Validate is called by the parser.
func (o *historyCommand) Validate() error {
	switch {
	case len(o.Sizes) == 0 || o.Sizes[0] < 100 || !slices.IsSorted(o.Sizes) || o.Sizes[len(o.Sizes)-1] > 100_000_000:
		return errors.New("--sizes are rising numbers from 100 to 100000000")
	case o.Customers < 1 || o.Customers > 1000:
		return errors.New("--customers is a number from 1 to 1000")
	case min(o.Connections, o.Loaders) < 1 || max(o.Connections, o.Loaders) > 192:
		return errors.New("--connections and --loaders are numbers from 1 to 192: one user of a tenant may have no more requests under way")
	case o.Duration <= 0 || o.Warmup < 0:
		return errors.New("--duration is positive, --warmup not negative")
	}
	return nil
}

// request is a kind of request whose cost is measured.
type request struct {
	what    string
	callers func() ([]load.Caller, error)
}

const (
	theTenant = 0 // there is one
	pageSize  = "50"
)

func (o *historyCommand) play(ctx context.Context, b *bench) error {
	// Make needs one invoice, for the sample.
	if err := b.make(ctx, target.Shape{Tenants: 1, Active: 1, Cells: 1, Customers: o.Customers, Invoices: 1}); err != nil {
		return err
	}
	b.rep.Note("one tenant in a cell of %d replicas, its invoices spread over %d customers; each kind of request %v with %d connections", b.Replicas, o.Customers, o.Duration, o.Connections)
	b.rep.Note("a page has at most %s invoices; deep: behind half of all invoices; nothing: a filter that no index knows and no invoice passes", pageSize)
	b.rep.Note("invoices are written through the public API, each in a request of its own; in each part writes are measured last, so that they add to the next")
	b.rep.Note("CPU: %s; others: the share of the machine's CPU that went to anything else", b.platform.CPUIncludes())
	costs := map[string][]report.Line{}
	var p places
	for _, size := range o.Sizes {
		has, err := o.grow(ctx, b, size)
		if err != nil {
			return err
		}
		if err := p.move(ctx, b.tenants, has/2); err != nil {
			return err
		}
		if err := o.measure(ctx, b, size, &p, costs); err != nil {
			return err
		}
	}
	o.compare(b, costs)
	return nil
}

// grow writes invoices until there are as many as asked for.
func (o *historyCommand) grow(ctx context.Context, b *bench, size uint64) (has uint64, err error) {
	b.say("writing until there are %d invoices", size)
	end, err := b.platform.Meter(fmt.Sprintf("load-%d", size), 0).Begin()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	before := b.tenants.Invoices(theTenant)
	has, err = b.tenants.Grow(ctx, theTenant, size, o.Loaders, b.say)
	took := time.Since(began)
	used, errEnd := end()
	if err := errors.Join(err, errEnd); err != nil {
		return 0, err
	}
	if has > size {
		b.rep.Note("at %d: there were %d invoices already", size, has)
	} else if written := float64(has - before); size >= 10_000 {
		b.rep.Tell(written/took.Seconds(), "/s", "invoices written by %d connections, up to %d", o.Loaders, size)
		b.rep.Tell(float64(used.Own.Microseconds())/written, "us", "CPU of one of them")
	}
	return has, nil
}

// places are where deep pages are read: behind half of all invoices, and of those
// that are younger than the first.
type places struct {
	all, younger target.Place
	half         string // when the invoice in the middle was made
}

func (p *places) move(ctx context.Context, ts *target.Tenants, half uint64) error {
	if p.younger.Filter == nil {
		first, err := ts.CreatedAt(ctx, theTenant, 1)
		if err != nil {
			return err
		}
		p.younger.Filter = url.Values{"createdAfter": {first}}
	}
	var err error
	if p.half, err = ts.CreatedAt(ctx, theTenant, half); err != nil {
		return err
	}
	return errors.Join(ts.Walk(ctx, theTenant, &p.all, half), ts.Walk(ctx, theTenant, &p.younger, half-1))
}

// measure measures all kinds of requests at one size.
func (o *historyCommand) measure(ctx context.Context, b *bench, size uint64, p *places, costs map[string][]report.Line) error {
	list := func(query url.Values) func() ([]load.Caller, error) {
		query.Set("limit", pageSize)
		return func() ([]load.Caller, error) { return b.tenants.Listers(o.Connections, theTenant, query), nil }
	}
	all := target.Choice{First: theTenant, Count: 1}
	last := fmt.Sprint(o.Customers)
	for i, k := range []request{
		{"read", func() ([]load.Caller, error) { return b.tenants.Readers(o.Connections, all), nil }},
		{"list, first page", list(url.Values{})},
		{"list, deep page", list(p.all.Query())},
		{"list, newest first", list(url.Values{"sort": {"-createdAt"}})},
		{"list of a customer", list(url.Values{"customerId": {last}})},
		{"list of a status", list(url.Values{"status": {"draft"}, "sort": {"-invoiceId"}})},
		{"list of a time", list(url.Values{"createdAfter": {p.half}})},
		{"list of a time, deep page", list(p.younger.Query())},
		{"nothing in a currency", list(url.Values{"currency": {"CHF"}})},
		{"nothing of a customer in it", list(url.Values{"customerId": {last}, "currency": {"CHF"}})},
		{"nothing of a status in it", list(url.Values{"status": {"draft"}, "currency": {"CHF"}, "sort": {"-invoiceId"}})},
		{"nothing of a customer in a status", list(url.Values{"customerId": {last}, "status": {"void"}})},
		{"list of customers", func() ([]load.Caller, error) { return b.tenants.Customers(o.Connections, theTenant), nil }},
		{"write", func() ([]load.Caller, error) { return b.tenants.Writers(o.Connections, all) }},
	} {
		b.say("%d invoices: %s", size, k.what)
		callers, err := k.callers()
		if err != nil {
			return err
		}
		l := load.Closed{Callers: callers, Classes: 1, Warmup: o.Warmup, Duration: o.Duration, Meter: b.platform.Meter(fmt.Sprintf("%d-%d", size, i), o.Duration)}
		warm, measured, err := l.Run(ctx)
		if err := errors.Join(err, load.CloseAll(callers)); err != nil {
			return err
		}
		if k.what == "write" {
			b.tenants.Wrote(warm, measured[0])
		}
		line := report.NewLine(fmt.Sprintf("%d invoices", size), k.what, measured[0])
		line.Connections, line.WarmupErrors = o.Connections, warm.Failed
		if line.FirstError == "" && warm.FirstErr != nil {
			line.FirstError = warm.FirstErr.Error()
		}
		b.rep.Lines = append(b.rep.Lines, line)
		costs[k.what] = append(costs[k.what], line)
	}
	return nil
}

// compare tells how much dearer each kind of request became.
func (o *historyCommand) compare(b *bench, costs map[string][]report.Line) {
	var told []string
	for _, l := range b.rep.Lines {
		if slices.Contains(told, l.What) {
			continue
		}
		told = append(told, l.What)
		all := costs[l.What]
		if first, last := all[0], all[len(all)-1]; first.CPU > 0 && len(all) > 1 {
			b.rep.Tell(last.CPU/first.CPU, "times", "%s: CPU of a request at %d invoices over that at %d", l.What, o.Sizes[len(o.Sizes)-1], o.Sizes[0])
		}
	}
}
