package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"celld/cmd/celldbench/baseline"
	"celld/cmd/celldbench/load"
	"celld/cmd/celldbench/report"
	"celld/cmd/celldbench/target"
)

// kind is a kind of work that is measured.
type kind int

const (
	bareHandler kind = iota
	reads
	rawRaft
	writes
)

func (k kind) String() string {
	return [...]string{"bare handler", "reads", "raw Raft", "writes"}[k]
}

// turns is work of several kinds that takes turns in short stretches, so that a slow
// minute of the machine slows all of them: reads and writes, and what the machine
// does at best. The load is closed.
type turns struct {
	Duration time.Duration `default:"4s" help:"How long each kind of work is measured at each number of connections, all rounds together (${default})."`
	Rounds   int           `default:"2" help:"In how many rounds, so that the kinds of work take turns (${default})."`
	Warmup   time.Duration `default:"500ms" help:"Load before each stretch that is not counted (${default})."`
	Only     string        `enum:",reads,writes,baseline" default:"" help:"Only one of reads, writes, baseline; without ratios."`
	Hot      float64       `placeholder:"SHARE" help:"Share of all requests that goes to one tenant, e.g. 0.2; it and the others are reported apart."`
}

// Validate is called by the parser.
func (o *turns) Validate() error {
	switch {
	case o.Rounds < 1:
		return errors.New("--rounds is at least 1")
	case o.Duration <= 0 || o.Warmup < 0:
		return errors.New("--duration is positive, --warmup not negative")
	case o.Hot < 0 || o.Hot > 1:
		return errors.New("--hot is a share from 0 to 1")
	}
	return nil
}

func checkConnections(all ...int) error {
	for _, c := range all {
		if c < 1 || c > 10_000 {
			return errors.New("--connections are numbers from 1 to 10000")
		}
	}
	return nil
}

// kinds are what is measured, in the order of their turns: each next to what it
// is compared with.
func (o *turns) kinds() []kind {
	switch o.Only {
	case "reads":
		return []kind{reads}
	case "writes":
		return []kind{writes}
	case "baseline":
		return []kind{bareHandler, rawRaft}
	}
	return []kind{bareHandler, reads, rawRaft, writes}
}

// stage is everything that takes turns.
type stage struct {
	*turns
	b    *bench
	bare *baseline.Bare
	raft *baseline.Raw
}

// take measures everything by turns at each number of connections and fills in the
// report.
func (o *turns) take(ctx context.Context, b *bench, connections []int) error {
	st := &stage{turns: o, b: b}
	var err error
	if st.bare, err = baseline.ServeBare(b.tenants.Sample(), slog.New(slog.NewTextHandler(b.stderr, nil))); err != nil {
		return err
	}
	b.closers = append(b.closers, st.bare.Close)
	if st.raft, err = baseline.StartRaw(ctx, filepath.Join(b.dir, "raw"), b.Replicas); err != nil {
		return err
	}
	b.closers = append(b.closers, st.raft.Close)
	b.rep.Note("closed load; each kind of work %v at each number of connections, in %d rounds by turns", o.Duration, o.Rounds)
	if o.Hot > 0 {
		b.rep.Variant = fmt.Sprintf("--hot %g", o.Hot)
		b.rep.Note("one tenant gets %.0f %% of the requests besides its share of the rest", 100*o.Hot)
	}
	b.rep.Note("a read answers %d bytes, as the bare handler does; a raw entry holds %d bytes", len(b.tenants.Sample()), baseline.EntryBytes)
	b.rep.Note("CPU: %s; others: the share of the machine's CPU that went to anything else", b.platform.CPUIncludes())
	for _, c := range connections {
		if err := st.at(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// at measures with c connections.
func (st *stage) at(ctx context.Context, c int) error {
	sums, warm, rounds := map[kind][]*load.Result{}, map[kind]*load.Result{}, map[kind][]*load.Result{}
	for round := range st.Rounds {
		for _, k := range st.kinds() {
			st.b.say("c=%d, round %d of %d: %s", c, round+1, st.Rounds, k)
			before, measured, err := st.stretch(ctx, k, c, round)
			if err != nil {
				return fmt.Errorf("%s at c=%d: %w", k, c, err)
			}
			if k == writes {
				st.b.tenants.Wrote(append(measured, before)...)
			}
			rounds[k] = append(rounds[k], load.Joined(measured))
			if warm[k] == nil {
				warm[k], sums[k] = load.NewResult(), []*load.Result{load.NewResult(), load.NewResult()}
			}
			warm[k].Merge(before)
			for class, r := range measured {
				sums[k][class].Merge(r)
			}
		}
	}
	for _, k := range st.kinds() {
		st.tell(k, c, sums[k], rounds[k], warm[k])
	}
	st.compare("reads/bare", c, rounds[reads], rounds[bareHandler])
	st.compare("writes/raw", c, rounds[writes], rounds[rawRaft])
	return nil
}

// stretch is one kind's turn.
func (st *stage) stretch(ctx context.Context, k kind, c, round int) (warm *load.Result, measured []*load.Result, err error) {
	d := st.Duration / time.Duration(st.Rounds)
	name := fmt.Sprintf("%s-c%d-%d", strings.ReplaceAll(k.String(), " ", "-"), c, round+1)
	l := load.Closed{Classes: target.Classes, Warmup: st.Warmup, Duration: d, Meter: st.b.platform.Meter(name, d)}
	if k == bareHandler || k == rawRaft {
		l.Meter = st.b.platform.MeterAlone(name)
	}
	if l.Callers, err = st.callers(k, c); err != nil {
		return nil, nil, err
	}
	warm, measured, err = l.Run(ctx)
	return warm, measured, errors.Join(err, load.CloseAll(l.Callers))
}

func (st *stage) callers(k kind, n int) (all []load.Caller, err error) {
	choice := st.b.tenants.Active(st.Hot)
	switch k {
	case reads:
		return st.b.tenants.Readers(n, choice), nil
	case writes:
		return st.b.tenants.Writers(n, choice)
	}
	for range n {
		if k == rawRaft {
			all = append(all, st.raft.Caller())
		} else {
			all = append(all, load.NewConn(st.bare.Addr, load.Same(st.bare.Request()), http.StatusOK))
		}
	}
	return all, nil
}

// tell adds a line for a kind of work, and with a hot tenant one for it and one for
// the others.
func (st *stage) tell(k kind, c int, classes, rounds []*load.Result, warm *load.Result) {
	all := load.NewResult()
	for _, r := range rounds {
		all.Merge(r)
	}
	l := report.NewLine("", k.String(), all)
	l.Connections, l.WarmupErrors = c, warm.Failed
	if all.FirstErr == nil && warm.FirstErr != nil {
		l.FirstError = warm.FirstErr.Error()
	}
	st.b.rep.Lines = append(st.b.rep.Lines, l)
	if st.Hot == 0 || k != reads && k != writes {
		return
	}
	for _, class := range []int{target.ToHot, target.ToOthers} {
		l := report.NewLine("", k.String()+[...]string{target.ToHot: ", hot tenant", target.ToOthers: ", others"}[class], classes[class])
		l.Connections, l.CPU, l.Errors = c, 0, 0 // they are told above
		st.b.rep.Lines = append(st.b.rep.Lines, l)
	}
}

// Goals at 64 connections with three replicas: the least, and the one behind it.
const (
	goalConnections = 64
	goalReplicas    = 3
)

func (st *stage) compare(what string, c int, product, base []*load.Result) {
	q, ok := report.NewRatio(what, c, product, base)
	if !ok {
		return
	}
	if c == goalConnections && st.b.Replicas == goalReplicas {
		switch {
		case what == "reads/bare" && st.b.Isolate:
			q.Goal, q.Beyond = 0.20, 0.40
		case what == "reads/bare":
			q.Goal, q.Beyond = 0.35, 0.40
		case st.b.Isolate:
			q.Goal, q.Beyond = 0.45, 1.20
		default:
			q.Goal, q.Beyond = 0.65, 1.20
		}
	}
	st.b.rep.Ratios = append(st.b.rep.Ratios, q)
}
