package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Closed is one stretch of load by callers who wait for their answers: a warm-up
// that counts for nothing but its errors, and a measured stretch right after it,
// with the same callers.
type Closed struct {
	Callers          []Caller
	Classes          int // of calls, at least 1
	Warmup, Duration time.Duration
	Meter            Meter
}

// Run drives all callers and waits for them. measured has a result for each class,
// all of the same time and CPU. A call that is under way when the measured stretch
// ends is finished and counted with the warm-up.
func (l *Closed) Run(ctx context.Context) (warm *Result, measured []*Result, err error) {
	workers := make([]worker, len(l.Callers))
	var phase atomic.Int32
	var wg sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		w.caller, w.warm, w.measured = l.Callers[i], NewResult(), results(l.Classes)
		wg.Go(func() { w.loop(ctx, &phase) })
	}
	wait(ctx, l.Warmup)
	end, errBegin := l.Meter.Begin()
	began := time.Now()
	phase.Store(measuring)
	wait(ctx, l.Duration)
	elapsed := time.Since(began)
	var used Usage
	var errEnd error
	if errBegin == nil {
		used, errEnd = end()
	}
	phase.Store(over)
	wg.Wait()
	warm, measured = NewResult(), results(l.Classes)
	for i := range workers {
		warm.join(workers[i].warm)
		for class, r := range workers[i].measured {
			measured[class].join(r)
		}
	}
	for _, r := range measured {
		r.Elapsed, r.CPU = elapsed, used
	}
	return warm, measured, errors.Join(errBegin, errEnd, context.Cause(ctx))
}

func results(classes int) []*Result {
	all := make([]*Result, classes)
	for i := range all {
		all[i] = NewResult()
	}
	return all
}

// Joined is one result of all classes.
func Joined(classes []*Result) *Result {
	all := NewResult()
	for _, r := range classes {
		all.join(r)
		all.Elapsed, all.CPU = r.Elapsed, r.CPU
	}
	return all
}

const (
	warming = iota
	measuring
	over
)

type worker struct {
	caller   Caller
	warm     *Result
	measured []*Result
}

// loop makes at least one call, however busy the machine is.
func (w *worker) loop(ctx context.Context, phase *atomic.Int32) {
	last := time.Now()
	for now := last; ; last = now {
		class, err := w.caller.Call(ctx)
		if ctx.Err() != nil {
			return // broken off, whatever it says
		}
		now = time.Now()
		// A call belongs to the phase in which it ends. One that outlasts the
		// stretch is kept with the warm-up: it did happen, and its error counts.
		at := phase.Load()
		r := w.warm
		if at == measuring {
			r = w.measured[class]
		}
		r.count(now.Sub(last), err)
		if at == over {
			return
		}
	}
}

// Count makes n calls, by callers who each make the next one when their last one was
// answered.
func Count(ctx context.Context, callers []Caller, n int) (*Result, error) {
	var left atomic.Int64
	left.Store(int64(n))
	each := results(len(callers))
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				start := time.Now()
				_, err := c.Call(ctx)
				each[i].count(time.Since(start), err)
			}
		})
	}
	wg.Wait()
	all := Joined(each)
	all.Elapsed = time.Since(began)
	return all, context.Cause(ctx)
}
