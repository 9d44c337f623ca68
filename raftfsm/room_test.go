package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/fault"
	"celld/store/room"
)

// space is how much is free on each member's disk, by its id.
type space struct {
	t     *testing.T
	mu    sync.Mutex
	free  map[string]*atomic.Uint64
	rooms map[string]*room.Room
}

const lots, short, nothing = 100_000, 3000, 0

// fullCluster gives every member a disk whose free space the test sets; the
// reserve is 4000 bytes.
func fullCluster(t *testing.T, n int) (*cluster, *space) {
	s := &space{t: t, free: map[string]*atomic.Uint64{}, rooms: map[string]*room.Room{}}
	c := newCluster(t, n, func(cfg *Config) {
		cfg.Room = s.of(cfg.ID)
		cfg.HasRoom = func(_ context.Context, m Member) (bool, error) { return s.of(m.ID).Level() == room.Ample, nil }
	})
	return c, s
}

func (s *space) of(id string) *room.Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[id] == nil {
		free := &atomic.Uint64{}
		free.Store(lots)
		r, err := room.Open(room.Config{Dir: "/" + id, Member: id, Reserve: 4000,
			Usage: func(string) (room.Usage, error) { return room.Usage{Free: free.Load(), Total: 1 << 30}, nil }})
		if err != nil {
			s.t.Error(err)
		}
		s.t.Cleanup(r.Close)
		s.free[id], s.rooms[id] = free, r
	}
	return s.rooms[id]
}

func (s *space) set(free uint64, members ...*member) {
	for _, m := range members {
		r := s.of(m.id)
		s.free[m.id].Store(free)
		r.Look()
	}
}

// A leader whose disk gets short refuses and hands over to one with room; the
// cell writes on, and the short one applies all of it.
func TestShortLeaderHandsOver(t *testing.T) {
	c, s := fullCluster(t, 3)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	old := c.leader()
	var others []*member
	for _, m := range c.members {
		if m != old {
			others = append(others, m)
		}
	}
	s.set(short, old, others[0])
	if _, err := old.group.Propose(testContext(t), command(t, cmdPut, "t1", put{K: "refused"})); !errors.Is(err, room.ErrFull) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("a short leader's Propose: %v", err)
	}
	if lead := c.leader(others...); lead != others[1] {
		t.Fatalf("%s leads, which has no room either", lead.name)
	}
	var out Outcome
	for i := range 50 {
		out = c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), fmt.Sprint(i)), others[1])
	}
	c.settled(out.Index)
	c.same("", "t1")
	if n := old.files.rows(t, "t1", "refused"); n != 0 {
		t.Errorf("a refused command has %d effects", n)
	}
}

// With nobody left to hand over to, writes are refused and reads go on, and all of
// it comes back by itself.
func TestFullGroupReadsOn(t *testing.T) {
	c, s := fullCluster(t, 3)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	c.settled(out.Index)
	s.set(nothing, c.members...)
	lead := c.leader() // it confirms a read
	_, err := lead.group.Propose(testContext(t), command(t, cmdPut, "t1", put{K: "k"}))
	if !errors.Is(err, room.ErrFull) || fault.As(err).Retry == 0 {
		t.Errorf("a full group's Propose: %v", err)
	}
	// An election among full members still ends, and the new leader reads.
	c.crash(lead)
	var others []*member
	for _, m := range c.members {
		if m != lead {
			others = append(others, m)
		}
	}
	next := c.leader(others...)
	if index, err := next.group.ReadIndex(testContext(t)); err != nil || index < out.Index {
		t.Errorf("a read on a full group: %d, %v", index, err)
	}
	s.set(lots, c.members...)
	c.restart(lead)
	out = c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "2"))
	c.settled(out.Index)
	c.same("", "t1")
}

// A follower without any space takes nothing more, keeps what it has, lives, and
// catches up when space is freed.
func TestFollowerWithoutSpace(t *testing.T) {
	c, s := fullCluster(t, 3)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	lead := c.leader()
	full := c.members[0]
	if full == lead {
		full = c.members[1]
	}
	c.settled(c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "0")).Index)
	s.set(nothing, full)
	var out Outcome
	for i := range 20 {
		out = c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), fmt.Sprint("while ", i)))
	}
	if n := full.files.rows(t, "t1", "k"); n != 1 {
		t.Errorf("the full follower shows %d rows", n)
	}
	select {
	case err := <-full.group.Failed():
		t.Fatalf("the full follower gave up: %v", err)
	default:
	}
	s.set(lots, full)
	c.settled(out.Index)
	c.same("", "t1")
}

// A leader that finds no space in the very write refuses before anything is
// written: the caller knows that nothing happened.
func TestLeaderWithoutSpaceInTheWrite(t *testing.T) {
	c, s := fullCluster(t, 1)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	m := c.leader()
	s.of(m.id)
	s.free[m.id].Store(nothing) // nobody has looked yet
	_, err := m.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	if !errors.Is(err, room.ErrFull) {
		t.Errorf("told %v", err)
	}
	s.set(lots, m)
	if out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1")); out.Replayed {
		t.Error("the refused command had an effect")
	}
}

// A member whose apply waits for space stops without it.
func TestStopWhileApplyWaits(t *testing.T) {
	c, s := fullCluster(t, 1)
	out := c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	m := c.leader()
	s.set(nothing, m)
	data, err := Encode(entry{Version: formatVersion, Commands: []Command{command(t, cmdPut, "t1", put{K: "k"})}})
	if err != nil {
		t.Fatal(err)
	}
	f := m.group.stores.snapshots.fsm
	answered := make(chan []any, 1)
	go func() {
		answered <- f.ApplyBatch([]*raft.Log{{Index: out.Index + 1, Type: raft.LogCommand, Data: data}})
	}()
	c.stop(m)
	if got := <-answered; !isStopped(got[0]) {
		t.Errorf("answered %v", got[0])
	}
}

// Space runs out in the middle of a batch, and no file can be closed to open the
// next one. That is no refusal: other members apply the command.
func TestApplyWaitsForAFile(t *testing.T) {
	s := &space{t: t, free: map[string]*atomic.Uint64{}, rooms: map[string]*room.Room{}}
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	f.room = s.of("id1")
	asked, first := make(chan struct{}, 10), true
	fs.failing = func(string) error {
		if first {
			first = false
			s.free["id1"].Store(nothing)
			f.room.Look()
		}
		asked <- struct{}{}
		if f.room.Level() == room.None {
			return fmt.Errorf("tenant t1: %w", f.room.Err())
		}
		return nil
	}
	answered := make(chan []any, 1)
	entry := logOf(t, 10, command(t, cmdPut, "t1", put{K: "a"}))
	go func() { answered <- f.ApplyBatch([]*raft.Log{entry}) }()
	for range 2 { // it asks again once it knows what to wait for
		select {
		case <-asked:
		case got := <-answered:
			t.Fatalf("without space it answered %+v", got)
		}
	}
	s.free["id1"].Store(lots)
	f.room.Look()
	if got := (<-answered)[0].([]result); got[0].err != nil || *failed != nil || fs.rows(t, "t1", "a") != 1 {
		t.Errorf("with space again: %+v, %v", got, *failed)
	}
}

// A follower without space takes no snapshot in, and does not end over one that it
// has received: what it has not committed could not be made durable first.
func TestInstallationWaitsForSpace(t *testing.T) {
	c, s := fullCluster(t, 1)
	m := c.leader()
	s.set(nothing, m)
	sink, err := m.group.stores.snapshots.Create(raft.SnapshotVersionMax, 10, 1, raft.Configuration{}, 1, m.group.transport)
	if !errors.Is(err, room.ErrFull) {
		t.Errorf("began to receive: %v, %v", sink, err)
	}
	f, failed := alone(t, newFilesFor(t))
	dead := make(chan struct{})
	f.room, f.dead = s.of(m.id), dead
	restored := make(chan error, 1)
	go func() { restored <- f.Restore(io.NopCloser(strings.NewReader("not a snapshot"))) }()
	close(dead)
	if err := <-restored; !errors.Is(err, errStopped) || *failed != nil {
		t.Errorf("restored with %v, failed with %v", err, *failed)
	}
}

// What is unavailable here may be had elsewhere: a command that meets it is not
// refused, or this member would go on without it.
func TestUnavailableIsNoRefusal(t *testing.T) {
	for name, meet := range map[string]func(*fsm, *files){
		"in opening the file": func(_ *fsm, fs *files) {
			fs.failing = func(string) error { return ErrNotLeader.Because(errors.New("cell.db is bad")) }
		},
		"in the guard":   func(f *fsm, _ *files) { f.guard = func(*store.Tx, Definition, *Command) error { return ErrBusy } },
		"in the handler": func(_ *fsm, fs *files) { fs.handler = func(*store.Tx, *Command) error { return ErrBehind } },
	} {
		t.Run(name, func(t *testing.T) {
			fs := newFilesFor(t, "t1")
			f, failed := alone(t, fs)
			meet(f, fs)
			answers := f.ApplyBatch([]*raft.Log{logOf(t, 10, command(t, cmdFail, "t1", put{K: "a"}))})
			if !isStopped(answers[0]) || *failed == nil {
				t.Errorf("answered %+v, failed with %v", answers[0], *failed)
			}
		})
	}
}

func TestRestraintEnds(t *testing.T) {
	s := &space{t: t, free: map[string]*atomic.Uint64{}, rooms: map[string]*room.Room{}}
	h := &restraint{room: s.of("id1"), wait: time.Second}
	at := time.Now()
	for _, step := range []struct {
		after time.Duration
		free  uint64
		want  bool
	}{
		{0, lots, false}, {0, short, true}, {900 * time.Millisecond, short, true}, {200 * time.Millisecond, short, false},
		{time.Second, short, false}, {3 * time.Second, short, true}, {0, lots, false},
	} {
		at = at.Add(step.after)
		s.of("id1")
		s.free["id1"].Store(step.free)
		s.of("id1").Look()
		if got := h.holds(at); got != step.want {
			t.Errorf("%+v: %t", step, got)
		}
	}
	if (*restraint)(nil).holds(at) {
		t.Error("none holds back")
	}
}

// isStopped tells whether the answer to an entry is that of a member that stopped.
func isStopped(answer any) bool {
	err, _ := answer.(error)
	return errors.Is(err, errStopped)
}
