package main

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// caller does one thing at a time, again and again.
type caller interface {
	call(ctx context.Context) error
	close() error
}

// result is what one or several slices of the same load came to.
type result struct {
	calls, failed uint64
	elapsed       time.Duration
	cpu           usage      // used meanwhile
	latency       *histogram // of calls that succeeded
	firstErr      error
}

func newResult() *result { return &result{latency: &histogram{}} }

func (r *result) merge(o *result) {
	r.calls += o.calls
	r.failed += o.failed
	r.elapsed += o.elapsed
	r.cpu.own += o.cpu.own
	r.cpu.machine += o.cpu.machine
	r.latency.merge(o.latency)
	r.firstErr = cmp.Or(r.firstErr, o.firstErr)
}

func (r *result) good() uint64 { return r.calls - r.failed }

func (r *result) perSecond() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.good()) / r.elapsed.Seconds()
}

func (r *result) cpuPerCall() time.Duration {
	if r.calls == 0 {
		return 0
	}
	return r.cpu.own / time.Duration(r.calls)
}

// others is the share of the machine's CPU that went to what is not measured.
func (r *result) others() float64 {
	all := r.elapsed * time.Duration(runtime.NumCPU())
	if all <= 0 {
		return 0
	}
	return max(0, float64(r.cpu.machine-r.cpu.own)/float64(all))
}

// slice is one stretch of load: a warm-up that counts for nothing but its
// errors, and a measured stretch right after it, with the same callers.
type slice struct {
	callers          []caller
	warmup, duration time.Duration
	cpu              func() (usage, error)
}

// run drives all callers and waits for them. A call that is under way when the
// measured stretch ends is finished and not counted.
func (s *slice) run(ctx context.Context) (warm, measured *result, err error) {
	workers := make([]worker, len(s.callers))
	var phase atomic.Int32
	var wg sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		w.caller, w.results = s.callers[i], [2]*result{newResult(), newResult()}
		wg.Go(func() { w.loop(ctx, &phase) })
	}
	wait(ctx, s.warmup)
	cpuBefore, errBefore := s.cpu()
	began := time.Now()
	phase.Store(measuring)
	wait(ctx, s.duration)
	elapsed := time.Since(began)
	cpuAfter, errAfter := s.cpu()
	phase.Store(over)
	wg.Wait()
	warm, measured = newResult(), newResult()
	for i := range workers {
		warm.merge(workers[i].results[warming])
		measured.merge(workers[i].results[measuring])
	}
	measured.elapsed = elapsed
	measured.cpu = usage{own: cpuAfter.own - cpuBefore.own, machine: cpuAfter.machine - cpuBefore.machine}
	return warm, measured, errors.Join(errBefore, errAfter, context.Cause(ctx))
}

const (
	warming = iota
	measuring
	over
)

type worker struct {
	caller  caller
	results [2]*result
}

// loop makes at least one call, however busy the machine is.
func (w *worker) loop(ctx context.Context, phase *atomic.Int32) {
	last := time.Now()
	for now := last; ; last = now {
		err := w.caller.call(ctx)
		if ctx.Err() != nil {
			return // broken off, whatever it says
		}
		now = time.Now()
		// A call belongs to the phase in which it ends. One that outlasts the
		// slice is kept with the warm-up: it did happen, and its error counts.
		at := phase.Load()
		r := w.results[warming]
		if at == measuring {
			r = w.results[measuring]
		}
		r.calls++
		if err == nil {
			r.latency.add(now.Sub(last))
		} else {
			r.failed++
			r.firstErr = cmp.Or(r.firstErr, err)
		}
		if at == over {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
