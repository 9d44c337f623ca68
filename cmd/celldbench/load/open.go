package load

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Stream is requests of one kind that come at a rate: independently of each other,
// with gaps as random as those of many users (exponential, so that the stream is a
// Poisson process), the same ones in each run.
type Stream struct {
	Rate    float64  // requests a second
	Callers []Caller // the most that are in flight at a time
	Seed    uint64
}

// lateAfter is how long after its time a request may be sent without being counted
// as late: a timer's own slack.
const lateAfter = 5 * time.Millisecond

// Open is one stretch of load that comes at its own times.
type Open struct {
	Streams          []Stream
	Warmup, Duration time.Duration
	Meter            Meter
}

// Run sends all streams at the same time and waits for every answer. There is a
// result for each stream of the requests that were to start in the warm-up, and one
// of those in the measured stretch, however late they were answered; the latter
// have the same time and CPU.
// Latency counts from when a request was to start. A request that finds all
// callers of its stream busy waits for one; if as many are waiting already it is
// not made, and Unmade counts it.
func (l *Open) Run(ctx context.Context) (warm, measured []*Result, err error) {
	runs := make([]*streamRun, len(l.Streams))
	began := time.Now()
	var wg sync.WaitGroup
	for i, s := range l.Streams {
		runs[i] = &streamRun{Stream: s, began: began, warmup: l.Warmup, until: l.Warmup + l.Duration,
			queue: make(chan time.Duration, len(s.Callers)), unmade: [2]uint64{}}
		wg.Go(func() { runs[i].run(ctx) })
	}
	wait(ctx, time.Until(began.Add(l.Warmup)))
	end, errBegin := l.Meter.Begin()
	wait(ctx, time.Until(began.Add(l.Warmup+l.Duration)))
	var used Usage
	var errEnd error
	if errBegin == nil {
		used, errEnd = end()
	}
	wg.Wait()
	for _, r := range runs {
		w, m := r.result()
		m.Elapsed, m.CPU = l.Duration, used
		warm, measured = append(warm, w), append(measured, m)
	}
	return warm, measured, errors.Join(errBegin, errEnd, context.Cause(ctx))
}

// streamRun is one stream on its way.
type streamRun struct {
	Stream
	began         time.Time
	warmup, until time.Duration      // after began
	queue         chan time.Duration // when requests were to start, after began
	unmade        [2]uint64          // in the warm-up, and measured
	done          [][2]*Result       // by caller: likewise
}

func (r *streamRun) run(ctx context.Context) {
	var wg sync.WaitGroup
	r.done = make([][2]*Result, len(r.Callers))
	for i, c := range r.Callers {
		r.done[i] = [2]*Result{NewResult(), NewResult()}
		wg.Go(func() { r.call(ctx, c, r.done[i]) })
	}
	r.pace(ctx)
	close(r.queue)
	wg.Wait()
}

// pace hands each request over when its time has come. A pacer that woke up late
// hands over all that are due at once, each with its own time.
func (r *streamRun) pace(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.Seed, math.MaxUint32))
	for due := time.Duration(0); ctx.Err() == nil; {
		due += time.Duration(random.ExpFloat64() / r.Rate * float64(time.Second))
		if due >= r.until {
			return
		}
		if ahead := time.Until(r.began.Add(due)); ahead > 0 {
			wait(ctx, ahead)
		}
		select {
		case r.queue <- due:
		default:
			r.unmade[r.phase(due)]++
		}
	}
}

func (r *streamRun) phase(due time.Duration) int {
	if due < r.warmup {
		return 0
	}
	return 1
}

func (r *streamRun) call(ctx context.Context, c Caller, done [2]*Result) {
	for due := range r.queue {
		if ctx.Err() != nil {
			continue
		}
		into := done[r.phase(due)]
		start := r.began.Add(due)
		if time.Since(start) > lateAfter {
			into.Late++
		}
		_, err := c.Call(ctx)
		if ctx.Err() == nil {
			into.count(time.Since(start), err)
		}
	}
}

func (r *streamRun) result() (warm, measured *Result) {
	warm, measured = NewResult(), NewResult()
	for _, d := range r.done {
		warm.join(d[0])
		measured.join(d[1])
	}
	warm.Unmade, measured.Unmade = r.unmade[0], r.unmade[1]
	return warm, measured
}
