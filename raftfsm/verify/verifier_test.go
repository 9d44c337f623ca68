package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// cell is a group without Raft: what is proposed is applied by all members that
// are there, one after the other.
type cell struct {
	t       *testing.T
	clock   atomic.Int64 // unix microseconds
	targets []string

	mu      sync.Mutex
	index   uint64
	members map[string]*member
	leader  string
}

type member struct {
	cell  *cell
	name  string
	v     *Verifier
	files map[string]*store.File
	away  atomic.Bool // it does not answer
	deaf  atomic.Bool // it applies nothing

	mu        sync.Mutex
	condemned []string
	visited   map[string]int
}

func schema() *store.Schema {
	return &store.Schema{Kind: "tenant", Migrations: []string{`CREATE TABLE item (k TEXT NOT NULL PRIMARY KEY, v INTEGER NOT NULL) STRICT, WITHOUT ROWID;`}}
}

func newCell(t *testing.T, members int, targets ...string) *cell {
	c := &cell{t: t, members: make(map[string]*member), targets: targets, leader: "m1"}
	c.clock.Store(micros(10000 * time.Hour))
	for i := range members {
		m := &member{cell: c, name: fmt.Sprint("m", i+1), files: make(map[string]*store.File), visited: make(map[string]int)}
		dir := t.TempDir()
		for _, target := range targets {
			path := filepath.Join(dir, "f"+target, "x.db")
			if err := store.Create(path, schema(), store.Control{CellKey: "k"}, 0); err != nil {
				t.Fatal(err)
			}
			f, err := store.Open(path, schema())
			if err != nil {
				t.Fatal(err)
			}
			m.files[target] = f
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		m.v = New(Config{
			Self: m.name, Number: 7, Files: m, Targets: func() ([]string, error) { return targets, nil }, Ask: m.ask,
			Condemn: func(target, reason string) error {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.condemned = append(m.condemned, target)
				return nil
			},
			Visited: func(_ context.Context, target string) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.visited[target]++
			},
			Clock: c.now, Logger: slog.New(slog.DiscardHandler),
		})
		m.v.tick = 5 * time.Millisecond
		c.members[m.name] = m
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.v.Close()
		}
	})
	return c
}

func (c *cell) start() {
	for _, m := range c.members {
		if err := m.v.Start(m); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cell) now() time.Time { return time.UnixMicro(c.clock.Load()) }

func (m *member) Keep(target string, f *store.File) (func(), bool) {
	return func() {}, m.files[target] == f
}
func (m *member) Ready() bool { return true }

func (m *member) IsLeader() bool {
	m.cell.mu.Lock()
	defer m.cell.mu.Unlock()
	return m.cell.leader == m.name
}

func (m *member) Servers() ([]raftfsm.Member, error) {
	var all []raftfsm.Member
	for i := range m.cell.members {
		all = append(all, raftfsm.Member{ID: i, Name: i, Voter: true})
	}
	return all, nil
}

func (m *member) Propose(_ context.Context, cmd raftfsm.Command) (raftfsm.Outcome, error) {
	c := m.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != m.name {
		return raftfsm.Outcome{}, raftfsm.ErrNotLeader
	}
	c.index++
	cmd.At = c.clock.Load()
	var mark raftfsm.Mark
	if err := raftfsm.Decode(cmd.Body, &mark); err != nil {
		return raftfsm.Outcome{}, err
	}
	for _, to := range c.members {
		if !to.deaf.Load() {
			to.v.Look(&cmd, mark, c.index, to.files[cmd.Target], nil)
		}
	}
	return raftfsm.Outcome{Index: c.index}, nil
}

var errAway = errors.New("connection refused")

func (m *member) ask(ctx context.Context, to raftfsm.Member, mark string) (Result, error) {
	other := m.cell.members[to.Name]
	if other.away.Load() {
		return Result{}, errAway
	}
	return other.v.Result(ctx, mark)
}

// put writes a row on one member, past all logs.
func (m *member) put(target, key string, value int) {
	m.cell.t.Helper()
	err := m.files[target].Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error {
			_, err := tx.Exec("INSERT INTO item (k, v) VALUES (?, ?) ON CONFLICT DO UPDATE SET v = excluded.v", key, value)
			return err
		})
	})
	if err != nil {
		m.cell.t.Fatal(err)
	}
}

func (c *cell) put(target, key string, value int) {
	for _, m := range c.members {
		m.put(target, key, value)
	}
}

// check marks a target and returns what each member makes of it.
func (c *cell) check(target string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	c.mu.Lock()
	leader := c.members[c.leader]
	c.mu.Unlock()
	mark, _, err := leader.v.Mark(ctx, target, true)
	if err != nil {
		c.t.Fatal(err)
	}
	out := ""
	for i := range len(c.members) {
		m := c.members[fmt.Sprint("m", i+1)]
		j, ok := m.v.results.verdict(ctx, mark)
		if !ok {
			out += "nothing "
			continue
		}
		out += fmt.Sprint(j.Verdict, j.Outliers, " ")
	}
	return out
}

// condemned tells which members gave which files up.
func (c *cell) condemned() string {
	out := ""
	for i := range len(c.members) {
		m := c.members[fmt.Sprint("m", i+1)]
		m.mu.Lock()
		out += fmt.Sprint(m.condemned)
		m.mu.Unlock()
	}
	return out
}

func TestOnlyTheOutlierGivesItsFileUp(t *testing.T) {
	for _, outlier := range []string{"m1", "m2", "m3"} { // m1 leads
		t.Run(outlier, func(t *testing.T) {
			c := newCell(t, 3, "a", "b")
			c.start()
			c.put("a", "k", 1)
			c.put("b", "k", 1)
			if got := c.check("a"); got != "equal[] equal[] equal[] " {
				t.Errorf("before: %s", got)
			}
			c.members[outlier].put("a", "k", 2)
			want := fmt.Sprintf("divergent[%s] ", outlier)
			if got := c.check("a"); got != want+want+want {
				t.Errorf("%s", got)
			}
			wantCondemned := map[string]string{"m1": "[a][][]", "m2": "[][a][]", "m3": "[][][a]"}[outlier]
			if got := c.condemned(); got != wantCondemned {
				t.Errorf("given up: %s", got)
			}
			if got := c.check("b"); got != "equal[] equal[] equal[] " {
				t.Errorf("another target: %s", got)
			}
			c.members[outlier].put("a", "k", 1)
			if got := c.check("a"); got != "equal[] equal[] equal[] " {
				t.Errorf("healed: %s", got)
			}
		})
	}
}

func TestWithoutAMajorityNobodyActs(t *testing.T) {
	two := newCell(t, 2, "a")
	two.start()
	two.members["m2"].put("a", "k", 2)
	if got := two.check("a"); got != "undecided[] undecided[] " || two.condemned() != "[][]" {
		t.Errorf("two: %s, given up %s", got, two.condemned())
	}
	c := newCell(t, 3, "a")
	c.start()
	c.members["m3"].deaf.Store(true)
	c.members["m3"].away.Store(true)
	c.members["m2"].put("a", "k", 2)
	if got := c.check("a"); got != "undecided[] undecided[] nothing " || c.condemned() != "[][][]" {
		t.Errorf("one away: %s, given up %s", got, c.condemned())
	}
	c.members["m2"].put("a", "l", 2)
	c.members["m1"].put("a", "l", 2)
	c.members["m1"].put("a", "k", 2)
	if got := c.check("a"); got != "incomplete[] incomplete[] nothing " {
		t.Errorf("equal, one away: %s", got)
	}
}

// A node takes nobody's word: whatever one other member says, its file stays.
func TestOneLiarCondemnsNobody(t *testing.T) {
	c := newCell(t, 3, "a")
	c.start()
	liar := c.members["m3"]
	ask := c.members["m1"].v.cfg.Ask
	for _, name := range []string{"m1", "m2"} {
		c.members[name].v.cfg.Ask = func(ctx context.Context, to raftfsm.Member, mark string) (Result, error) {
			r, err := ask(ctx, to, mark)
			if to.Name == liar.name {
				r.Digest = "lie"
			}
			return r, err
		}
	}
	if got := c.check("a"); got != "divergent[m3] divergent[m3] equal[] " || c.condemned() != "[][][]" {
		t.Errorf("%s, given up %s", got, c.condemned())
	}
}

// TestSweepByAFakeClock: within a day of the clock every target is visited on every
// leader's watch, whoever leads; a clock that steps changes nothing for long.
func TestSweepByAFakeClock(t *testing.T) {
	c := newCell(t, 3, "", "a", "b", "c")
	c.start()
	visits := func() (least int) {
		total := make(map[string]int)
		for _, m := range c.members {
			m.mu.Lock()
			for target, n := range m.visited {
				total[target] += n
			}
			m.mu.Unlock()
		}
		least = 1 << 30
		for _, target := range c.targets {
			least = min(least, total[target])
		}
		return least
	}
	listed := func() bool {
		for _, m := range c.members {
			m.v.schedule.mu.Lock()
			n := len(m.v.schedule.plans)
			m.v.schedule.mu.Unlock()
			if n < len(c.targets) {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(patience); !listed() && time.Now().Before(end); {
		await(t.Context(), time.Millisecond)
	}
	before := visits()
	for day, step := range []time.Duration{24 * time.Hour, 24 * time.Hour, -3 * time.Hour, 3 * time.Hour} {
		c.mu.Lock()
		c.leader = fmt.Sprint("m", day%3+1)
		c.mu.Unlock()
		c.clock.Add(micros(step))
		if step < 24*time.Hour { // the rest of a day
			c.clock.Add(micros(24 * time.Hour))
		}
		for end := time.Now().Add(patience); visits() <= before; {
			if time.Now().After(end) {
				t.Fatalf("day %d: %d visits each, as before", day+1, visits())
			}
			await(t.Context(), time.Millisecond)
		}
		before = visits()
	}
}

func TestBounds(t *testing.T) {
	targets := []string{"a", "b", "c", "d", "e", "f"}
	c := newCell(t, 1, targets...)
	c.start()
	m := c.members["m1"]
	for i := range 400 {
		for _, target := range targets {
			m.put(target, fmt.Sprintf("%04d%01000d", i, i), i)
		}
	}
	m.v.cfg.Rate = 1 // a byte a second: nothing ends by itself
	var marks []string
	for _, target := range targets {
		mark, _, err := m.v.Mark(t.Context(), target, false)
		if err != nil {
			t.Fatal(err)
		}
		marks = append(marks, mark)
	}
	missed, running := 0, 0
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mark := range marks {
		switch r, err := m.v.Result(gone, mark); {
		case err != nil:
			t.Error(err)
		case r.State == Missed && r.Reason == errBusy.Error():
			missed++
		case r.State == Running:
			running++
		}
	}
	if running != maxPins || missed != len(targets)-maxPins {
		t.Errorf("%d run and %d are missed", running, missed)
	}
	if _, err := m.v.Result(gone, "unknown"); !errors.Is(err, ErrNoMark) {
		t.Errorf("%v", err)
	}
	m.v.Close() // does not wait for them to end by themselves
	for _, mark := range marks {
		if r, err := m.v.Result(t.Context(), mark); err != nil || r.State != Missed {
			t.Errorf("after Close: %+v %v", r, err)
		}
	}
	if m.v.pins.Load() != 0 {
		t.Errorf("%d pins are left", m.v.pins.Load())
	}
	mark := raftfsm.Mark{ID: "late"}
	m.v.Look(&raftfsm.Command{Target: "a"}, mark, 9, m.files["a"], nil)
	if r, err := m.v.Result(t.Context(), "late"); err != nil || r.State != Missed {
		t.Errorf("after Close: %+v %v", r, err)
	}
}

func TestLookAtWhatIsNotThere(t *testing.T) {
	c := newCell(t, 1, "a")
	m := c.members["m1"]
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	m.v.Look(&raftfsm.Command{Target: "a", At: 5}, raftfsm.Mark{ID: "early"}, 1, m.files["a"], nil)
	if _, err := m.v.Result(gone, "early"); !errors.Is(err, ErrNoMark) {
		t.Errorf("before the start: %v", err)
	}
	if m.v.schedule.oldest() != 5 {
		t.Error("its time was not noted")
	}
	if _, _, err := m.v.Mark(gone, "a", true); !errors.Is(err, raftfsm.ErrNotLeader) {
		t.Errorf("%v", err)
	}
	c.start()
	m.v.Look(&raftfsm.Command{Target: "a"}, raftfsm.Mark{ID: "passed"}, 2, nil, raftfsm.ErrPassed)
	if r, err := m.v.Result(gone, "passed"); err != nil || r.State != Missed || r.Reason != raftfsm.ErrPassed.Error() {
		t.Errorf("%+v %v", r, err)
	}
	for _, id := range []string{"", fmt.Sprintf("%065d", 1)} {
		m.v.Look(&raftfsm.Command{Target: "a"}, raftfsm.Mark{ID: id}, 3, m.files["a"], nil)
		if _, err := m.v.Result(gone, id); !errors.Is(err, ErrNoMark) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}
