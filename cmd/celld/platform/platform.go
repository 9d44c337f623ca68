package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"celld/cmd/celld/client"
)

const (
	// stopWithin bounds an ordered stop of one member; gateways stop before nodes,
	// so that both together stay below ten seconds.
	stopWithin = 4 * time.Second
	// readyWithin bounds a start.
	readyWithin = 2 * time.Minute
	// poll is how often a start looks whether what it waits for is there.
	poll = 50 * time.Millisecond

	region = "local"
)

// Platform is a running platform.
type Platform struct {
	dir      string
	options  Options
	logger   *slog.Logger
	lock     *os.File
	plan     *plan
	gateways []*Member
	nodes    []*Member
	roles    *roles // the members in this process; nil with Isolate
	admin    *client.Client
	ends     chan error // what ends the start: a member that ended, or too many of them
	outages  outages
	stopOnce sync.Once
	stopErr  error

	mu          sync.Mutex // guards nodes, the files below and what they hold
	state       state
	credentials Credentials
}

// Start runs a platform and returns when it serves: credentials are written, all
// gateways answer /readyz with 200, every cell has a leader. Once the groups are
// formed, members that don't start are told to Progress and left out while a
// majority of each group runs. On an error nothing runs. ctx bounds the start
// alone; Stop ends the platform.
func Start(ctx context.Context, o Options) (*Platform, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	held, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	p := &Platform{
		dir: o.Dir, options: o, lock: held, ends: make(chan error, 1),
		logger: slog.New(slog.NewJSONHandler(o.Log, &slog.HandlerOptions{Level: o.Level})),
	}
	if err := p.start(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopWithin)
		defer cancel()
		if stop := p.Stop(stopCtx); stop != nil { // follows from the error, so it is for the log alone
			p.logger.Error("stop what had started", "error", stop)
		}
		return nil, err
	}
	return p, nil
}

func (p *Platform) start(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("the platform is not ready after %v", readyWithin))
	defer cancel()
	if err := p.prepare(); err != nil {
		return err
	}
	p.options.Progress(fmt.Sprintf("starting %d gateway(s) and the cells %v with %d replica(s) each", p.state.Gateways, p.state.Cells, p.state.Replicas))
	if err := p.launchAll(ctx); err != nil {
		return err
	}
	p.options.Progress("waiting for the directory and the cells to elect their leaders")
	if err := p.join(ctx); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	if err := p.plan.openGate(); err != nil {
		return err
	}
	if err := p.awaitGateways(ctx, p.credentials.Gateways, "/readyz"); err != nil {
		return err
	}
	p.logger.Info("the platform is ready", "seconds", time.Since(began).Seconds())
	return nil
}

// prepare reads what DIR holds and lays out this start.
func (p *Platform) prepare() error {
	s, err := loadState(p.dir, p.options)
	if err != nil {
		return err
	}
	p.state = s
	token, err := loadOperatorToken(p.dir)
	if err != nil {
		return fmt.Errorf("the operators' token: %w", err)
	}
	if _, err := readJSON(CredentialsPath(p.dir), &p.credentials); err != nil {
		return err
	}
	// What an earlier start left is not true any more. The credentials stay: this
	// start is not ready before it has written its own.
	if err := os.Remove(PIDsPath(p.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if p.plan, err = newPlan(p.options, s); err != nil {
		return err
	}
	p.credentials.OperatorToken = token
	p.credentials.Gateways = nil
	for _, public := range p.plan.public {
		p.credentials.Gateways = append(p.credentials.Gateways, "http://"+reachable(public.Addr()))
	}
	if p.credentials.Users == nil {
		p.credentials.Users = map[string]string{}
	}
	if err := p.front(); err != nil {
		return err
	}
	return p.saveState()
}

// front makes the first gateway that is not down the one that the platform itself
// and people use.
func (p *Platform) front() error {
	i := max(0, slices.IndexFunc(p.gateways, func(g *Member) bool { return p.outages.of(g.name) == nil }))
	url := p.adminURLs()[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin != nil && p.credentials.Admin == url {
		return nil
	}
	admin, err := client.New(url, p.credentials.OperatorToken)
	if err != nil {
		return err
	}
	if p.admin != nil {
		p.admin.Close()
	}
	p.admin, p.credentials.Admin, p.credentials.Gateway = admin, url, p.credentials.Gateways[i]
	return nil
}

// launchAll starts every member, all at the same time: none of them serves before
// a majority of its group runs.
func (p *Platform) launchAll(ctx context.Context) error {
	if err := p.makeMembers(); err != nil {
		return err
	}
	all := p.Members()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() {
			if err := m.Start(ctx); err != nil {
				errs[i] = fmt.Errorf("start %s: %w", m.name, err)
			}
		})
	}
	wg.Wait()
	if p.forming() || ctx.Err() != nil {
		return errors.Join(errs...)
	}
	return p.lost()
}

// awaitGateways waits until all gateways that run answer path with 200.
func (p *Platform) awaitGateways(ctx context.Context, urls []string, path string) error {
	for i, g := range p.gateways {
		url := urls[i] + path
		err := p.await(ctx, url, func(ctx context.Context) error {
			if p.outages.of(g.name) != nil {
				return nil
			}
			return probe(ctx, url)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await polls check until it returns nil, ctx ends or too many members do.
func (p *Platform) await(ctx context.Context, what string, check func(ctx context.Context) error) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w); the log has more", what, context.Cause(ctx), err)
		case end := <-p.ends:
			return end
		case <-ticker.C:
		}
	}
}

func probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("it answers " + resp.Status)
	}
	return nil
}

// Members are all gateways and nodes.
func (p *Platform) Members() []*Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members()
}

// members is Members for who holds mu.
func (p *Platform) members() []*Member { return append(slices.Clone(p.gateways), p.nodes...) }

// Member is the gateway or node of that name, like G1 or C2/n1; nil if there is
// none.
func (p *Platform) Member(name string) *Member {
	for _, m := range p.Members() {
		if m.name == name {
			return m
		}
	}
	return nil
}

// Profilers are the addresses at which the members tell what they are busy with, by
// member: none without Isolate and Profiles.
func (p *Platform) Profilers() map[string]string {
	all := map[string]string{}
	for name, at := range p.plan.profilers {
		all[name] = at.Addr()
	}
	return all
}

// Dir is the platform's folder.
func (p *Platform) Dir() string { return p.dir }

// Credentials says where the platform listens and which tokens it knows.
func (p *Platform) Credentials() Credentials {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.credentials
	c.Gateways = slices.Clone(c.Gateways)
	c.Users = maps.Clone(c.Users)
	return c
}

// Sentinels are the fixture's random texts by tenant; nil without a fixture.
func (p *Platform) Sentinels() map[string]Sentinel {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Fixture == nil {
		return nil
	}
	return maps.Clone(p.state.Fixture.Sentinels)
}

func (p *Platform) saveState() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return writeJSON(statePath(p.dir), p.state)
}

func (p *Platform) saveCredentials() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return writeJSON(CredentialsPath(p.dir), p.credentials)
}

// savePIDs tells which process every member has now.
func (p *Platform) savePIDs() error {
	if !p.options.Isolate {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := map[string]int{}
	for _, m := range p.members() {
		if pid := m.PID(); pid != 0 {
			pids[m.name] = pid
		}
	}
	return writeJSON(PIDsPath(p.dir), pids)
}

// Stop ends the platform in its order: gateways drain while the cells still
// answer them, then nodes hand leadership over, commit and close. When ctx ends
// the rest is ended at once, which loses nothing that was acknowledged.
func (p *Platform) Stop(ctx context.Context) error {
	p.stopOnce.Do(func() { p.stopErr = p.stop(ctx) })
	return p.stopErr
}

func (p *Platform) stop(ctx context.Context) error {
	front, cancel := context.WithTimeout(ctx, stopWithin+stopWithin/8) // what is left is the nodes'
	err := stopAll(front, p.gateways)
	cancel()
	err = errors.Join(err, stopAll(ctx, p.nodes))
	if p.admin != nil {
		p.admin.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	if p.plan != nil {
		err = errors.Join(err, p.plan.release(), os.RemoveAll(p.plan.run))
		if e := os.Remove(PIDsPath(p.dir)); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, p.lock.Close())
}

func stopAll(ctx context.Context, members []*Member) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			if err := m.Stop(ctx); err != nil {
				errs[i] = fmt.Errorf("stop %s: %w", m.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// LogPath is where `celld dev` writes the log of a platform on dir.
func LogPath(dir string) string { return filepath.Join(dir, "celld.log") }
