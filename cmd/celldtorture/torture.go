package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"celld/store/failpoint"
)

// The steps that a node reaches in the course of a day, and those of a replica
// that has to fetch what it missed.
var (
	everyday = []failpoint.Name{
		failpoint.LogStored, failpoint.ApplyBegun, failpoint.ApplyBetween, failpoint.ApplyDone, failpoint.CommitBegun,
		failpoint.CommitDone, failpoint.CheckpointBetween, failpoint.SnapshotSynced, failpoint.LogCut,
	}
	catchingUp = []failpoint.Name{
		failpoint.InstallBegun, failpoint.InstallRecorded, failpoint.InstallPlaced,
		failpoint.FetchStaged, failpoint.FetchDurable, failpoint.FetchSwitched,
	}
)

// torture is a run.
type torture struct {
	o       *options
	w       *world
	out     io.Writer
	rand    *rand.Rand
	writers *writers
	faults  map[string]breakage

	ahead   []string       // kinds that come before any comes again
	struck  map[string]int // by kind
	reached map[failpoint.Name]int
	slowest time.Duration // write
}

func newTorture(o *options, w *world, out io.Writer) *torture {
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return &torture{
		o: o, w: w, out: out, rand: rand.New(rand.NewPCG(o.Seed, 0)), faults: kinds(o),
		struck: make(map[string]int), reached: make(map[failpoint.Name]int),
	}
}

// play runs all cycles and the last check.
func (t *torture) play(ctx context.Context) (err error) {
	began := time.Now()
	var ledgers []*ledger
	for i := range t.o.Tenants {
		l, err := newLedger(ctx, t.w, i)
		if err != nil {
			return fmt.Errorf("make tenant %d: %w", i+1, err)
		}
		ledgers = append(ledgers, l)
	}
	t.writers = startWriters(ctx, ledgers)
	defer func() { err = errors.Join(err, t.writers.stop()) }()
	fmt.Fprintf(t.out, "seed %d, %d cycles, %d writers, faults: %v\n", t.o.Seed, t.o.Cycles, len(ledgers), slices.Sorted(maps.Keys(t.faults)))
	cycles := 0
	for ; cycles < t.o.Cycles && (t.o.For == 0 || time.Since(began) < t.o.For); cycles++ {
		if err := t.cycle(ctx, cycles+1); err != nil {
			return fmt.Errorf("cycle %d (seed %d): %w", cycles+1, t.o.Seed, err)
		}
	}
	t.writers.pause()
	defer t.writers.resume()
	if err := t.settled(ctx, ledgers, true); err != nil {
		return fmt.Errorf("the last check (seed %d): %w", t.o.Seed, err)
	}
	return t.report(cycles, time.Since(began))
}

// cycle writes, breaks, waits for the platform to heal, and checks.
func (t *torture) cycle(ctx context.Context, n int) error {
	before := t.writers.acked.Load()
	err := until(ctx, healWithin, "some writes", func(context.Context) (bool, error) {
		return t.writers.acked.Load() > before+int64(20+t.rand.IntN(200)), t.writers.broken()
	})
	if err != nil {
		return err
	}
	kind := t.next()
	what, err := t.faults[kind](t, ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	t.struck[kind]++
	struck := time.Now().UnixNano()
	err = until(ctx, healWithin, "writes go on after: "+what, func(context.Context) (bool, error) {
		return t.writers.lastAck.Load() > struck, t.writers.broken()
	})
	if err != nil {
		return err
	}
	t.writers.pause()
	defer t.writers.resume()
	some := []*ledger{t.writers.ledgers[t.rand.IntN(len(t.writers.ledgers))]}
	if err := t.settled(ctx, some, false); err != nil {
		return fmt.Errorf("after %s: %w", what, err)
	}
	slowest := t.writers.reset().slowest
	t.slowest = max(t.slowest, slowest)
	fmt.Fprintf(t.out, "%4d  %-9s  %s; %d acknowledged, all there, the slowest after %.1f s; replicas equal\n",
		n, kind, what, t.writers.acked.Load()-before, slowest.Seconds())
	return nil
}

// next is a kind of fault: all of them, shuffled, again and again.
func (t *torture) next() string {
	if len(t.ahead) == 0 {
		t.ahead = slices.Sorted(maps.Keys(t.faults))
		t.rand.Shuffle(len(t.ahead), func(i, j int) { t.ahead[i], t.ahead[j] = t.ahead[j], t.ahead[i] })
	}
	kind := t.ahead[0]
	t.ahead = t.ahead[1:]
	return kind
}

// settled waits until the platform is whole and holds the ledgers against it: what
// is new in all of them, or everything, and the replicas of some.
func (t *torture) settled(ctx context.Context, some []*ledger, everything bool) error {
	if err := t.writers.broken(); err != nil {
		return err
	}
	if _, err := t.w.awaitWhole(ctx); err != nil {
		return err
	}
	for _, l := range t.writers.ledgers {
		if everything {
			l.checked = 0
		}
		if _, err := l.check(ctx); err != nil {
			return err
		}
	}
	for _, l := range some {
		if err := t.w.awaitEqual(ctx, l.tenant); err != nil {
			return err
		}
	}
	return nil
}

// equalWithin bounds how long the replicas of a tenant that is not written to may
// take to be equal.
const equalWithin = 30 * time.Second

func (w *world) awaitEqual(ctx context.Context, tenant string) error {
	return until(ctx, equalWithin, "the replicas of "+tenant+" are equal", func(ctx context.Context) (bool, error) {
		var answer struct{ Equal bool }
		err := w.operator.Get(ctx, "/tenants/"+tenant+"/replicas", nil, &answer)
		return err == nil && answer.Equal, err
	})
}

// report says what was done. A step that was never reached is told, and is a
// failure of a run that was long enough to reach it.
func (t *torture) report(cycles int, took time.Duration) error {
	fmt.Fprintf(t.out, "\n%d cycles in %s: %d writes acknowledged, 0 lost, 0 twice; all replicas of all tenants equal\n", cycles, took.Round(time.Second), t.writers.acked.Load())
	fmt.Fprintf(t.out, "the slowest write took %s, retries and the time without processes or disks included\n", t.slowest.Round(time.Millisecond))
	for _, kind := range slices.Sorted(maps.Keys(t.struck)) {
		fmt.Fprintf(t.out, "  %-20s %d\n", kind, t.struck[kind])
	}
	var missed []failpoint.Name
	for _, name := range failpoint.Names() {
		fmt.Fprintf(t.out, "  %-20s %d\n", name, t.reached[name])
		if t.reached[name] == 0 {
			missed = append(missed, name)
		}
	}
	const enough = 20                                          // cycles for each step
	asked := t.struck["failpoint"] > 0 && t.struck["away"] > 0 // the two that make processes die at steps
	if asked && len(missed) > 0 && cycles >= enough*len(failpoint.Names()) {
		return fmt.Errorf("no process died at %v", missed)
	}
	return nil
}
