package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
)

const (
	maxPins  = 4               // states pinned at a time
	maxTasks = 16              // marks worked on at a time, comparing included
	pinTime  = 5 * time.Minute // for one digest

	defaultEvery = 24 * time.Hour
	defaultRate  = 16 << 20
	urgentRate   = 4 // times Rate, for a mark that somebody waits for

	proposeTime = 5 * time.Second
)

// Group is the Raft group as the verifier uses it.
type Group interface {
	Propose(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error)
	IsLeader() bool
	Ready() bool
	Servers() ([]raftfsm.Member, error)
}

// Files is the files of the group.
type Files interface {
	// Keep keeps the file f of a target, which apply is using, open until release is
	// called. It is called under apply's locks, and waits for nobody.
	Keep(target string, f *store.File) (release func(), ok bool)
}

// ErrNoMark says that a replica knows nothing of a mark: it has not applied it
// yet, or no longer remembers it.
var ErrNoMark = fault.New(fault.Conflict, "no-such-mark", "this replica knows nothing of the mark; it is behind, or it is long ago")

// Config is what a Verifier needs; what may be nil says so.
type Config struct {
	Self   string         // this member's logical name
	Number raftfsm.Number // of the group's mark
	Files  Files

	// Targets lists what the sweep goes through.
	Targets func() ([]string, error)
	// Ask fetches another member's result, waiting a little for it to be final.
	// ErrNoMark is an answer; any other error means that the member is not there.
	Ask func(ctx context.Context, member raftfsm.Member, mark string) (Result, error)
	// Condemn gives up this replica's file of a target: a majority says that it is
	// bad. nil: there is nothing to be done about it but to say so.
	Condemn func(target, reason string) error
	// Noticed hears of a damaged file. nil for nobody.
	Noticed func(target string, err error)
	// Visited is called on the leader after the sweep has compared a target. nil
	// for nothing.
	Visited func(ctx context.Context, target string)

	Every   time.Duration         // within which each target is compared; 0 for a day
	Rate    int64                 // bytes digested a second; 0 for 16 MiB
	Clock   func() time.Time      // the one that stamps commands
	Logger  *slog.Logger          // with the member's name
	Metrics prometheus.Registerer // nil for none
}

// Verifier is one member's part in comparing replicas. Its methods may be called
// from any goroutine.
type Verifier struct {
	cfg      Config
	group    atomic.Pointer[Group] // nil before Start
	results  results
	schedule *schedule
	metrics  *metrics
	pins     atomic.Int32
	tick     time.Duration

	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	mu      sync.Mutex // guards what follows
	closing bool
	tasks   int
	running sync.WaitGroup
}

// New makes a verifier. Its Look goes into the group's table; Start lets it work.
func New(cfg Config) *Verifier {
	if cfg.Every <= 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Rate <= 0 {
		cfg.Rate = defaultRate
	}
	v := &Verifier{cfg: cfg, schedule: newSchedule(cfg.Every / 2), metrics: newMetrics(), tick: time.Second}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v
}

// Start lets the verifier work: its group is open.
func (v *Verifier) Start(g Group) error {
	if err := v.metrics.register(v); err != nil {
		return err
	}
	v.group.Store(&g)
	v.running.Go(v.sweep)
	return nil
}

// Close ends all work and waits for it. It comes before the files are closed, and
// may come before the group is: marks that are applied later are passed over.
func (v *Verifier) Close() {
	v.mu.Lock()
	v.closing = true
	v.mu.Unlock()
	v.cancel()
	v.running.Wait()
	v.metrics.unregister()
}

// begin notes a task that Close waits for.
func (v *Verifier) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing || v.tasks == maxTasks {
		return false
	}
	v.tasks++
	v.running.Add(1)
	return true
}

func (v *Verifier) end() {
	v.mu.Lock()
	v.tasks--
	v.mu.Unlock()
	v.running.Done()
}

// Mark has all members look at a target and returns the mark's id, under which
// each of them tells what it found. Only the leader can: raftfsm.ErrNotLeader.
func (v *Verifier) Mark(ctx context.Context, target string, urgent bool) (id string, index uint64, err error) {
	g := v.group.Load()
	if g == nil {
		return "", 0, raftfsm.ErrNotLeader
	}
	id = rand.Text()
	c, err := raftfsm.NewCommand(v.cfg.Number, target, raftfsm.Mark{ID: id, Urgent: urgent})
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	out, err := (*g).Propose(ctx, c)
	return id, out.Index, err
}

// Result returns what this member has found at a mark: the final result, or how
// far it is when ctx ends. ErrNoMark if it knows nothing of the mark.
func (v *Verifier) Result(ctx context.Context, mark string) (Result, error) {
	r, known := v.results.wait(ctx, mark)
	if !known {
		return r, ErrNoMark
	}
	return r, nil
}

var (
	errBusy    = errors.New("too many digests are being computed at this replica; try again later")
	errTooLong = errors.New("the digest took more than " + pinTime.String() + " at the configured rate; raise digestRate")
)

// Verdict returns what the results of all members at a mark say together, by this
// member's own comparison. It waits for that until ctx ends.
func (v *Verifier) Verdict(ctx context.Context, mark string) (Judgement, error) {
	j, judged := v.results.verdict(ctx, mark)
	if !judged {
		if err := context.Cause(ctx); err != nil {
			return j, err
		}
		return j, ErrNoMark
	}
	return j, nil
}
