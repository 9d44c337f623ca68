package load

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"
)

// Caller does one thing at a time, again and again. class says what sort of thing
// it was: an index below the number of classes that the load was told of.
type Caller interface {
	Call(ctx context.Context) (class int, err error)
	Close() error
}

// CloseAll closes callers.
func CloseAll(callers []Caller) error {
	var err error
	for _, c := range callers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Result is what one or several stretches of the same load came to.
type Result struct {
	Calls, Failed uint64
	Unmade        uint64 // of an open load: requests that found no caller
	Late          uint64 // of an open load: requests that were sent more than lateAfter after their time
	Elapsed       time.Duration
	CPU           Usage      // used meanwhile
	Latency       *Histogram // of calls that succeeded
	FirstErr      error
}

// NewResult is a result of nothing.
func NewResult() *Result { return &Result{Latency: &Histogram{}} }

// Merge adds o to r: stretches one after the other.
func (r *Result) Merge(o *Result) {
	r.Elapsed += o.Elapsed
	r.CPU.Own += o.CPU.Own
	r.CPU.Machine += o.CPU.Machine
	r.join(o)
}

// join adds what others did at the same time.
func (r *Result) join(o *Result) {
	r.Calls += o.Calls
	r.Failed += o.Failed
	r.Unmade += o.Unmade
	r.Late += o.Late
	r.Latency.merge(o.Latency)
	r.FirstErr = cmp.Or(r.FirstErr, o.FirstErr)
}

// Good is how many calls were answered as they should be.
func (r *Result) Good() uint64 { return r.Calls - r.Failed }

// Bad is how many were not, or were not even made.
func (r *Result) Bad() uint64 { return r.Failed + r.Unmade }

// PerSecond is the rate of good answers.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Good()) / r.Elapsed.Seconds()
}

// CPUPerCall is what one call cost in CPU.
func (r *Result) CPUPerCall() time.Duration {
	if r.Calls == 0 {
		return 0
	}
	return r.CPU.Own / time.Duration(r.Calls)
}

// Others is the share of the machine's CPU that went to what is not measured.
func (r *Result) Others() float64 {
	all := r.Elapsed * time.Duration(runtime.NumCPU())
	if all <= 0 {
		return 0
	}
	return max(0, float64(r.CPU.Machine-r.CPU.Own)/float64(all))
}

func (r *Result) count(latency time.Duration, err error) {
	r.Calls++
	if err == nil {
		r.Latency.add(latency)
		return
	}
	r.Failed++
	r.FirstErr = cmp.Or(r.FirstErr, err)
}

// Usage is CPU time: of what is measured, and of the whole machine.
type Usage struct{ Own, Machine time.Duration }

// Meter watches a measured stretch. Begin is called when it begins, and end, once,
// when it is over.
type Meter interface {
	Begin() (end func() (Usage, error), err error)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
