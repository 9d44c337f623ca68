package main

import (
	"context"
	"errors"
	"time"

	"celld/cmd/celldbench/load"
	"celld/cmd/celldbench/report"
	"celld/cmd/celldbench/target"
)

// What users may have to wait for at most, 95 times of 100.
const (
	goalRead  = 200 * time.Millisecond
	goalWrite = 400 * time.Millisecond
)

// rateCommand measures latency under load that comes at its own times.
type rateCommand struct {
	Tenants  int           `default:"100" help:"Tenants to make, each with an owner of its own (${default})."`
	Invoices int           `default:"20" help:"Invoices that each tenant has before the first read (${default})."`
	Steady   float64       `default:"417" placeholder:"N" help:"Requests a second over all tenants (${default}); 0 leaves the part out."`
	Peak     float64       `default:"2085" placeholder:"N" help:"The same once more (${default})."`
	Busy     float64       `default:"1667" placeholder:"N" help:"Requests a second of one tenant (${default}) while the others go on; 0 leaves the part out."`
	Beside   float64       `default:"100" placeholder:"N" help:"Requests a second over all the others meanwhile (${default})."`
	Reads    float64       `default:"0.8" placeholder:"SHARE" help:"Share of reads (${default})."`
	InFlight int           `default:"192" placeholder:"N" help:"Most requests under way at a time in each part and of the busy tenant (${default}), a third of them writes. As many may wait; beyond that a request is not made and counts as failed."`
	Duration time.Duration `default:"30s" help:"How long each part is measured (${default})."`
	Warmup   time.Duration `default:"3s" help:"Load before it that is not counted (${default})."`
}

// Validate is called by the parser.
func (o *rateCommand) Validate() error {
	switch {
	case o.Tenants < 2 || o.Tenants > 10_000 || o.Invoices < 1:
		return errors.New("--tenants is a number from 2 to 10000, --invoices at least 1")
	case o.Steady < 0 || o.Peak < 0 || o.Busy < 0 || o.Beside <= 0:
		return errors.New("rates are not negative, and --beside is positive")
	case o.Reads <= 0 || o.Reads >= 1:
		return errors.New("--reads is a share between 0 and 1")
	case o.InFlight < 3 || o.InFlight > 192:
		return errors.New("--in-flight is a number from 3 to 192: one user of a tenant may have no more requests under way")
	case o.Duration <= 0 || o.Warmup < 0:
		return errors.New("--duration is positive, --warmup not negative")
	}
	return nil
}

// crowd is users who send requests at a rate.
type crowd struct {
	who    string
	choice target.Choice
	rate   float64
}

func (o *rateCommand) play(ctx context.Context, b *bench) error {
	if err := b.make(ctx, target.Shape{Tenants: o.Tenants, Active: o.Tenants, Cells: 1, Customers: 1, Invoices: o.Invoices}); err != nil {
		return err
	}
	b.rep.Note("%d tenants in one cell of %d replicas, %d invoices each; each part %v, %.0f %% reads", o.Tenants, b.Replicas, o.Invoices, o.Duration, 100*o.Reads)
	b.rep.Note("open load: requests come at random times at the given rate, whatever the platform does; latency counts from the time at which a request was to start")
	b.rep.Note("late: sent more than 5 ms after its time; not made: found %d under way and as many waiting, and counts as failed", o.InFlight)
	b.rep.Note("CPU: %s; others: the share of the machine's CPU that went to anything else", b.platform.CPUIncludes())
	all := b.tenants.Active(0)
	for _, part := range []struct {
		name, file string
		crowds     []crowd
	}{
		{"all tenants", "steady", []crowd{{"", all, o.Steady}}},
		{"all tenants, peak", "peak", []crowd{{"", all, o.Peak}}},
		{"one busy tenant", "busy", []crowd{{", busy tenant", target.Choice{Count: 1}, o.Busy}, {", others", target.Choice{First: 1, Count: o.Tenants - 1}, o.Beside}}},
	} {
		if part.crowds[0].rate == 0 {
			continue
		}
		b.say("%s: %.0f requests a second for %v", part.name, part.crowds[0].rate, o.Warmup+o.Duration)
		if err := o.part(ctx, b, part.name, part.file, part.crowds); err != nil {
			return err
		}
	}
	return nil
}

// part measures crowds who come at the same time.
func (o *rateCommand) part(ctx context.Context, b *bench, name, file string, crowds []crowd) error {
	l := load.Open{Warmup: o.Warmup, Duration: o.Duration, Meter: b.platform.Meter(file, o.Duration)}
	for i, c := range crowds {
		w := o.InFlight / 3
		writers, err := b.tenants.Writers(w, c.choice)
		if err != nil {
			return err
		}
		l.Streams = append(l.Streams,
			load.Stream{Rate: c.rate * o.Reads, Callers: b.tenants.Readers(o.InFlight-w, c.choice), Seed: uint64(2 * i)},
			load.Stream{Rate: c.rate * (1 - o.Reads), Callers: writers, Seed: uint64(2*i + 1)})
	}
	warm, measured, err := l.Run(ctx)
	for _, s := range l.Streams {
		err = errors.Join(err, load.CloseAll(s.Callers))
	}
	if err != nil {
		return err
	}
	o.tell(b, name, crowds, warm, measured)
	return nil
}

// tell adds a line for each stream and one for all of them, which has the CPU time.
func (o *rateCommand) tell(b *bench, name string, crowds []crowd, warm, measured []*load.Result) {
	var offered float64
	for i, c := range crowds {
		offered += c.rate
		for j, kind := range []struct {
			what  string
			share float64
			goal  time.Duration
		}{{"reads", o.Reads, goalRead}, {"writes", 1 - o.Reads, goalWrite}} {
			r := measured[2*i+j]
			if kind.what == "writes" {
				b.tenants.Wrote(warm[2*i+j], r)
			}
			l := report.NewLine(name, kind.what+c.who, r)
			l.Offered, l.CPU, l.WarmupErrors = c.rate*kind.share, 0, warm[2*i+j].Bad()
			l.Aim(kind.goal)
			b.rep.Lines = append(b.rep.Lines, l)
		}
	}
	l := report.NewLine(name, "together", load.Joined(measured))
	l.Offered, l.Errors, l.Unmade, l.FirstError = offered, 0, 0, "" // they are told above
	b.rep.Lines = append(b.rep.Lines, l)
}
