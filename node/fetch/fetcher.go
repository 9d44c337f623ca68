package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/room"
	"celld/store/tenant"
)

// Group is the node's member of the cell's group as a Fetcher uses it.
type Group interface {
	Floor() uint64
	CatchUp(ctx context.Context, target string, file *store.File, from uint64, place func() error) error
	Ready() bool // everything is applied that was committed when it was first heard
	IsLeader() bool
	TransferTo(ctx context.Context, id string) error
}

// Peer is another node of the cell.
type Peer struct {
	ID     string // in the group
	Name   string // logical, like C2/n1
	Voter  bool
	Client *http.Client                        // speaks to it alone, whatever the URL's host
	Whole  func(context.Context) (bool, error) // asks whether it is ready and lacks nothing
}

// Config is what a Fetcher needs; all but Room, Limits and Metrics is required.
type Config struct {
	Space   *cellfsm.Space
	Group   Group
	Peers   func() ([]Peer, error) // the other nodes, as they are now
	Room    *room.Room             // what the node's disk has left; nil for no end of it
	Limits  Limits
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil for none
}

// How long a tenant that could not be fetched waits for its next turn.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Fetcher brings absent tenants' files back.
type Fetcher struct {
	cfg     Config
	limiter *rate.Limiter
	metrics metrics
}

// New makes a fetcher; it does nothing before Run.
func New(cfg Config) *Fetcher {
	return &Fetcher{cfg: cfg, limiter: cfg.Limits.limiter(), metrics: newMetrics(cfg.Metrics, cfg.Space.Absent)}
}

// turn is where an absent tenant stands.
type turn struct {
	running  bool
	failures int
	next     time.Time // of the next attempt
}

type outcome struct {
	uid tenant.UID
	err error
}

// Run fetches until ctx ends, and returns when nothing of it runs any more.
func (f *Fetcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	lead := make(chan struct{}, 1)
	wg.Go(func() { f.mindLeadership(ctx, lead) })
	turns := make(map[tenant.UID]*turn)
	ended := make(chan outcome)
	running := 0
	for {
		wake := f.start(turns, f.cfg.Limits.parallel()-running, func(a cellfsm.Absence) {
			running++
			wg.Go(func() {
				o := outcome{a.UID, f.fetch(ctx, a)}
				select {
				case ended <- o:
				case <-ctx.Done():
				}
			})
		})
		if len(turns) > 0 {
			select {
			case lead <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.cfg.Space.AbsenceTold():
		case <-wake:
		case o := <-ended:
			running--
			f.end(turns, o)
		}
	}
}

// start begins what is due, up to free, and returns a channel that wakes when the
// next attempt is due. Turns of tenants that are not absent any more go.
func (f *Fetcher) start(turns map[tenant.UID]*turn, free int, begin func(cellfsm.Absence)) <-chan time.Time {
	now := time.Now()
	var next time.Time
	absent := make(map[tenant.UID]bool)
	for _, a := range f.cfg.Space.Absences() {
		absent[a.UID] = true
		t := turns[a.UID]
		if t == nil {
			t = new(turn)
			turns[a.UID] = t
		}
		switch {
		case t.running:
		case !t.next.After(now) && free > 0:
			t.running = true
			free--
			begin(a)
		case t.next.After(now) && (next.IsZero() || t.next.Before(next)):
			next = t.next
		}
	}
	for uid, t := range turns {
		if !absent[uid] && !t.running {
			delete(turns, uid)
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

func (f *Fetcher) end(turns map[tenant.UID]*turn, o outcome) {
	t := turns[o.uid]
	t.running = false
	if o.err == nil {
		if n := f.cfg.Space.Absent(); n == 0 {
			f.cfg.Logger.Info("no tenant is absent here any more")
		}
		return
	}
	f.metrics.failures.Inc()
	pause := min(firstPause<<min(t.failures, 10), lastPause)
	t.failures++
	t.next = time.Now().Add(pause/2 + rand.N(pause))
	f.cfg.Logger.Warn("an absent tenant could not be fetched; it is tried again",
		"uid", o.uid, "attempt", t.failures, "next", time.Until(t.next).Round(time.Millisecond).String(), "error", o.err)
}

// errAlone tells an operator what to do where no other node has the file.
var errAlone = errors.New("the cell has no other replica, so the tenant stays absent here (the others are served, and the log is kept whole): " +
	"bring back a node of the cell that has the tenant's file, or keep this node's folder for repair")

// fetch makes one attempt: every other node is asked once, beginning anywhere.
func (f *Fetcher) fetch(ctx context.Context, a cellfsm.Absence) (err error) {
	if f.cfg.Room.Level() != room.Ample {
		return f.cfg.Room.Err()
	}
	peers, err := f.cfg.Peers()
	if err != nil {
		return err
	}
	if len(peers) == 0 {
		return errAlone
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	st, err := f.cfg.Space.Stage(a.UID)
	if errors.Is(err, cellfsm.ErrNotHere) && f.cfg.Group.Ready() {
		return f.cfg.Space.DropAbsence(a.UID) // and not only because the log is still being applied
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.End()) }()
	began := time.Now()
	for _, p := range peers {
		no := f.fetchFrom(ctx, p, a, st)
		if no == nil {
			f.metrics.tenants.Inc()
			f.metrics.seconds.Observe(time.Since(began).Seconds())
			f.cfg.Logger.Info("an absent tenant was fetched", "uid", a.UID, "tenant", st.Tenant().ID, "from", p.Name,
				"took", time.Since(began).Round(time.Millisecond).String(), "still_absent", f.cfg.Space.Absent())
			return nil
		}
		err = errors.Join(err, fmt.Errorf("from %s: %w", p.Name, no))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return err
}

// fetchFrom stages the file that one node has, checks it, catches it up and puts
// it in place.
func (f *Fetcher) fetchFrom(ctx context.Context, p Peer, a cellfsm.Absence, st *cellfsm.Staging) error {
	if err := store.Remove(st.Path()); err != nil { // of another node's attempt
		return err
	}
	row := st.Tenant()
	// The log goes on from the floor; and below it, from what was asked for. What a
	// move has done to the file is not in the tenant's part of the log.
	least := max(a.Min, f.cfg.Group.Floor(), row.Changed)
	head, err := f.download(ctx, p, st, least)
	if err != nil {
		return err
	}
	if head.UID != row.UID || head.Tenant != row.ID || head.Folder != row.Folder || head.AsOf < least {
		return fmt.Errorf("it sent %s (%s) in %s as of %d, not %s (%s) in %s as of %d",
			head.Tenant, head.UID, head.Folder, head.AsOf, row.ID, row.UID, row.Folder, least)
	}
	file, err := st.Open()
	if err != nil {
		return fmt.Errorf("what was sent can't be used: %w", err)
	}
	err = f.cfg.Group.CatchUp(ctx, string(row.UID), file, head.AsOf, func() error { return st.Place(file, head.AsOf) })
	return errors.Join(err, file.Close())
}

// mindLeadership hands leadership over while anything is absent here.
func (f *Fetcher) mindLeadership(ctx context.Context, told <-chan struct{}) {
	const check, most = 250 * time.Millisecond, time.Minute
	tick := time.NewTicker(check)
	defer tick.Stop()
	pause, next := time.Second, time.Time{}
	for {
		if f.cfg.Space.Absent() == 0 {
			pause, next = time.Second, time.Time{}
			select {
			case <-told:
			case <-ctx.Done():
				return
			}
			continue // what was told may be fetched by now
		}
		if f.cfg.Group.IsLeader() && !time.Now().Before(next) {
			if err := f.handOver(ctx); err != nil {
				f.cfg.Logger.Info("this node leads although tenants are absent here", "error", err)
			}
			next = time.Now().Add(pause/2 + rand.N(pause))
			pause = min(2*pause, most)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

var errNobody = errors.New("no other voter is ready and lacks nothing itself")

// handOver gives leadership to a voter that lacks nothing.
func (f *Fetcher) handOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	peers, err := f.cfg.Peers()
	if err != nil {
		return err
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	err = errNobody
	for _, p := range peers {
		if !p.Voter {
			continue
		}
		whole, asking := p.Whole(ctx)
		if asking != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.Name, asking))
		}
		if !whole {
			continue
		}
		if err = f.cfg.Group.TransferTo(ctx, p.ID); err == nil || !f.cfg.Group.IsLeader() {
			f.cfg.Logger.Info("leadership handed over, because tenants are absent here", "to", p.Name)
			return nil
		}
	}
	return err
}
