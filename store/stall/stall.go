package stall

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// looks is how many looks find a call before it counts as hanging.
const looks = 5

// longer is how much more patience calls have that move much.
const longer = 3

// Kind is how much a call may have to do.
type Kind int

// The kinds.
const (
	Short Kind = iota // a commit: some pages
	Long              // a checkpoint, or what makes a file durable: megabytes
)

// Call is a call to the disk.
type Call struct {
	What string // "COMMIT"
	Path string // of the file
	Kind Kind
}

// Error says which call does not return.
type Error struct {
	Call  Call
	After time.Duration // for which it has been waited, at the least
}

func (e *Error) Error() string {
	return fmt.Sprintf("the disk hangs: %s of %s has not returned for %s", e.Call.What, e.Call.Path, e.After)
}

// Config is what a Watch is told. Limit is required.
type Config struct {
	Limit time.Duration // of a Short call, not counting time in which the process stood still

	Member  string                // whose disk it is, for the metrics: "C2/n1"
	Metrics prometheus.Registerer // nil for none
	// Reached hears of each call right before it is made; nil for nobody. A test
	// has it not return, as a disk would.
	Reached func(Call)
}

// Watch watches the calls of one member. Its methods may be called from any
// goroutine.
type Watch struct {
	cfg Config

	mu    sync.Mutex
	calls map[*call]struct{} // under way
	asked time.Time          // when the look to come was asked for
	hung  *Error             // the first

	hangs      chan struct{} // closed with hung
	stop       chan struct{}
	over       chan struct{}
	closing    sync.Once
	collectors []prometheus.Collector
}

type call struct {
	Call
	since time.Time
	seen  int // looks that counted
}

// New begins to watch.
func New(cfg Config) (*Watch, error) {
	w := &Watch{cfg: cfg, calls: make(map[*call]struct{}), hangs: make(chan struct{}), stop: make(chan struct{}), over: make(chan struct{})}
	if err := w.register(); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *Watch) step() time.Duration { return w.cfg.Limit / looks }

func (w *Watch) run() {
	defer close(w.over)
	timer := time.NewTimer(w.ask(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			w.look(time.Now())
			timer.Reset(w.ask(time.Now()))
		case <-w.stop:
			return
		}
	}
}

// ask notes that the next look is asked for now, and says when it should be.
func (w *Watch) ask(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = now
	return w.step()
}

// look counts for each call that is under way that it still is.
func (w *Watch) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.asked) >= 2*w.step() || w.hung != nil {
		return
	}
	for c := range w.calls {
		c.seen++
		patience := looks
		if c.Kind == Long {
			patience *= longer
		}
		if c.seen >= patience {
			w.hung = &Error{Call: c.Call, After: time.Duration(patience-1) * w.step()}
			close(w.hangs)
			return
		}
	}
}

// Begin notes that a call is being made; the function that it returns, that it
// has returned.
func (w *Watch) Begin(what, path string, kind Kind) (done func()) {
	if w == nil {
		return func() {}
	}
	c := &call{Call: Call{What: what, Path: path, Kind: kind}, since: time.Now()}
	w.mu.Lock()
	w.calls[c] = struct{}{}
	w.mu.Unlock()
	if w.cfg.Reached != nil {
		w.cfg.Reached(c.Call)
	}
	return func() {
		w.mu.Lock()
		delete(w.calls, c)
		w.mu.Unlock()
	}
}

// Hangs is closed when a call hangs. It stays closed: what the call did to its
// file is not known.
func (w *Watch) Hangs() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.hangs
}

// Err is about the first call that hung, nil if none did.
func (w *Watch) Err() *Error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hung
}

// Waiting is for how long the oldest call has been under way.
func (w *Watch) Waiting() time.Duration {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var oldest time.Duration
	for c := range w.calls {
		oldest = max(oldest, time.Since(c.since))
	}
	return oldest
}

func (w *Watch) register() error {
	if w.cfg.Metrics == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) {
		w.collectors = append(w.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "celld", Subsystem: "disk", Name: name,
			Help: help, ConstLabels: prometheus.Labels{"member": w.cfg.Member}}, value))
	}
	gauge("waiting_seconds", "For how long the oldest commit, checkpoint or sync of a file has been under way.", func() float64 { return w.Waiting().Seconds() })
	gauge("hangs", "1 when one of them does not return: the member stops.", func() float64 {
		if w.Err() != nil {
			return 1
		}
		return 0
	})
	for i, c := range w.collectors {
		if err := w.cfg.Metrics.Register(c); err != nil {
			w.collectors = w.collectors[:i]
			w.unregister()
			return err
		}
	}
	return nil
}

func (w *Watch) unregister() {
	for _, c := range w.collectors {
		w.cfg.Metrics.Unregister(c)
	}
}

// Close ends the goroutine. Calls that are under way go on unwatched.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.closing.Do(func() {
		close(w.stop)
		<-w.over
		w.unregister()
	})
}
