package room

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/store/fault"
)

// Level is how much may still be written.
type Level int32

// The levels, from good to bad.
const (
	Ample Level = iota
	Short
	None
)

// String names the level in logs.
func (l Level) String() string { return [...]string{"ample", "short", "none"}[l] }

// ErrFull refuses what would need space that is not there. Where it happened and
// how much is missing is in its cause: for logs, not for callers.
var ErrFull = (&fault.Error{Kind: fault.Unavailable, Slug: "disk-full",
	Detail: "there is no disk space left for writes; nothing was changed, reads go on; retry later"}).After(5 * time.Second)

// Inodes below which a file system that counts them is Short, and None.
const (
	shortFiles = 1024
	noneFiles  = 128
)

// every is how often the file system is looked at.
const every = time.Second

// Config is what a Room is told. Dir is required.
type Config struct {
	Dir     string // a folder that exists, on the file system in question
	Member  string // whose data it is, for messages: "C2/n1"
	Reserve uint64 // bytes; 0 for no reserve, which makes the level Ample for ever
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil for none
	// Usage asks the file system; nil for statfs.
	Usage func(dir string) (Usage, error)
}

// Usage is how full a file system is. Free is what an unprivileged process may
// still take. Files is 0 where inodes are not counted.
type Usage struct {
	Free, Total, FreeFiles, Files uint64
}

// Room is the space left for one member. Its methods may be called from any
// goroutine.
type Room struct {
	cfg   Config
	level atomic.Int32
	free  atomic.Uint64

	mu      sync.Mutex // of a look, and of what follows
	changed chan struct{}
	blind   bool // the last look failed

	stop       chan struct{}
	stopped    sync.WaitGroup
	closing    sync.Once
	collectors []prometheus.Collector
}

// Open looks for the first time and goes on looking until Close. It refuses a
// reserve that the file system could never have.
func Open(cfg Config) (*Room, error) {
	if cfg.Usage == nil {
		cfg.Usage = statfs
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Room{cfg: cfg, changed: make(chan struct{}), stop: make(chan struct{})}
	if err := Check(cfg); err != nil {
		return nil, err
	}
	r.Look()
	if err := r.register(); err != nil {
		return nil, err
	}
	r.stopped.Go(r.watch)
	return r, nil
}

// Check says whether the file system of cfg.Dir is large enough for the reserve.
func Check(cfg Config) error {
	if cfg.Usage == nil {
		cfg.Usage = statfs
	}
	u, err := cfg.Usage(cfg.Dir)
	if err != nil {
		return fmt.Errorf("ask how full the file system of %s is: %w", cfg.Dir, err)
	}
	if need := cfg.Reserve + cfg.Reserve/8; u.Total < need {
		return fmt.Errorf("a disk reserve of %d bytes needs a file system of at least %d; that of %s has %d: take a larger one, or a smaller --disk-reserve",
			cfg.Reserve, need, cfg.Dir, u.Total)
	}
	return nil
}

func (r *Room) watch() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Look()
		case <-r.stop:
			return
		}
	}
}

// Level is the level of the last look.
func (r *Room) Level() Level {
	if r == nil {
		return Ample
	}
	return Level(r.level.Load())
}

// Look asks the file system now and returns the level.
func (r *Room) Look() Level {
	if r == nil || r.cfg.Reserve == 0 {
		return Ample
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	had := Level(r.level.Load())
	u, err := r.cfg.Usage(r.cfg.Dir)
	if err != nil {
		if !r.blind {
			r.cfg.Logger.Error("cannot tell how full the disk is; going by what was seen last", "folder", r.cfg.Dir, "error", err)
		}
		r.blind = true
		return had
	}
	r.blind = false
	r.free.Store(u.Free)
	now := r.judge(u, had)
	if now == had {
		return now
	}
	r.level.Store(int32(now))
	level := slog.LevelWarn
	if now < had {
		level = slog.LevelInfo
	}
	r.cfg.Logger.Log(context.Background(), level, says[now], "folder", r.cfg.Dir, "free_bytes", u.Free, "free_files", u.FreeFiles,
		"reserve_bytes", r.cfg.Reserve)
	close(r.changed)
	r.changed = make(chan struct{})
	return now
}

var says = [...]string{
	Ample: "there is disk space again: everything is written",
	Short: "disk space is below the reserve: no new writes are taken on here until some is freed",
	None:  "disk space has run out: nothing is written here until some is freed",
}

// judge is the level for what is left, given the level so far.
func (r *Room) judge(u Usage, had Level) Level {
	floor, spare := r.cfg.Reserve/4, r.cfg.Reserve/8
	below := func(level Level, bytes, files uint64) bool {
		if had >= level { // leaving it takes more than entering it did
			bytes, files = bytes+spare, files+files/8
		}
		return u.Free < bytes || u.Files > 0 && u.FreeFiles < files
	}
	switch {
	case below(None, floor, noneFiles):
		return None
	case below(Short, r.cfg.Reserve, shortFiles):
		return Short
	}
	return Ample
}

// Free is how many bytes were free at the last look, and how many of them are the
// reserve.
func (r *Room) Free() (free, reserve uint64) {
	if r == nil {
		return 0, 0
	}
	return r.free.Load(), r.cfg.Reserve
}

// Err is ErrFull, with what is missing where as its cause.
func (r *Room) Err() *fault.Error {
	free, reserve := r.Free()
	return ErrFull.Because(fmt.Errorf("%s: the file system of %s has %d bytes free and needs %d", r.cfg.Member, r.cfg.Dir, free, reserve+reserve/8))
}

// Changed is closed with the next change of level.
func (r *Room) Changed() <-chan struct{} {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Await returns nil when the level is worst or better, and ctx's error when it
// ends first.
func (r *Room) Await(ctx context.Context, worst Level) error {
	for {
		changed := r.Changed() // before the level, so that no change is missed
		if r.Level() <= worst {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Room) register() error {
	if r.cfg.Metrics == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) {
		r.collectors = append(r.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "celld", Subsystem: "disk", Name: name,
			Help: help, ConstLabels: prometheus.Labels{"member": r.cfg.Member}}, value))
	}
	gauge("free_bytes", "Free space of the file system of the member's data.", func() float64 { return float64(r.free.Load()) })
	gauge("reserve_bytes", "Free space below which no new writes are taken on.", func() float64 { return float64(r.cfg.Reserve) })
	gauge("level", "0 ample, 1 below the reserve, 2 nothing is written any more.", func() float64 { return float64(r.Level()) })
	for i, c := range r.collectors {
		if err := r.cfg.Metrics.Register(c); err != nil {
			r.collectors = r.collectors[:i]
			r.unregister()
			return err
		}
	}
	return nil
}

func (r *Room) unregister() {
	for _, c := range r.collectors {
		r.cfg.Metrics.Unregister(c)
	}
}

// Close ends the goroutine. The level stays as it is.
func (r *Room) Close() {
	if r == nil {
		return
	}
	r.closing.Do(func() {
		close(r.stop)
		r.stopped.Wait()
		r.unregister()
	})
}
