package raftfsm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"celld/store"
)

func failure(t *testing.T, g *Group) error {
	t.Helper()
	select {
	case err := <-g.Failed():
		return err
	case <-testContext(t).Done():
		t.Fatal("no failure reported")
		return nil
	}
}

// A member that fails locally applies nothing more, and the others go on.
func TestLocalFailureStopsTheMember(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	bad := c.leader()
	bad.files.handler = func(*store.Tx, *Command) error { return errors.New("the disk says no") }
	_, err := bad.group.Propose(testContext(t), keyed(t, command(t, cmdFail, "t1", put{K: "k"}), "1"))
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("the caller was told %v", err)
	}
	if err := failure(t, bad.group); !strings.Contains(err.Error(), "the disk says no") || !strings.Contains(err.Error(), "t1.db") {
		t.Errorf("the owner was told %v", err)
	}
	had := bad.group.Applied()
	var others []*member
	for _, m := range c.members {
		if m != bad {
			others = append(others, m)
		}
	}
	// Its effect is there on the others, once.
	if out := c.must(keyed(t, command(t, cmdFail, "t1", put{K: "k"}), "1"), others...); !out.Replayed {
		t.Error("the command had no effect on the others")
	}
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "2"), others...)
	if got := bad.group.Applied(); got != had || bad.group.Ready() || bad.group.IsLeader() {
		t.Errorf("the stopped member went on: applied %d, then %d", had, got)
	}
	if _, err := bad.group.Propose(testContext(t), command(t, cmdPut, "t1", put{K: "k"})); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a stopped member's Propose: %v", err)
	}
	// Started anew without the fault, it catches up.
	c.stop(bad)
	bad.files.handler = nil
	c.restart(bad)
	c.settled(out.Index)
	c.same("", "t1")
}

func TestWhatStopsAMember(t *testing.T) {
	for name, cmd := range map[string]Command{
		"unknown command":  {Number: 999, Target: "t1", Body: []byte{0x80}},
		"undecodable body": {Number: cmdPut, Target: "t1", Body: []byte{0x63, 'a', 'b', 'c'}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
			lead := c.leader()
			before := lead.files.content(t, "t1")
			if _, err := lead.group.Propose(testContext(t), cmd); !errors.Is(err, ErrUnknown) {
				t.Errorf("the caller was told %v", err)
			}
			if err := failure(t, lead.group); !strings.Contains(err.Error(), strings.Fields(name)[0]) {
				t.Errorf("the owner was told %v", err)
			}
			if lead.files.content(t, "t1") != before {
				t.Error("something was changed")
			}
		})
	}
	t.Run("undecodable entry", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		if err := lead.group.raft.Apply([]byte("nonsense"), 0).Error(); err != nil {
			t.Fatal(err)
		}
		if err := failure(t, lead.group); !strings.Contains(err.Error(), "undecodable") {
			t.Errorf("the owner was told %v", err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
		lead := c.leader()
		lead.files.failing = func(string) error { panic("a mistake") }
		if _, err := lead.group.Propose(testContext(t), command(t, cmdPut, "t1", put{})); !errors.Is(err, ErrUnknown) {
			t.Errorf("the caller was told %v", err)
		}
		if err := failure(t, lead.group); !strings.Contains(err.Error(), "a mistake") {
			t.Errorf("the owner was told %v", err)
		}
		lead.files.failing = nil
	})
}

// disk is a log store that can be told to hang or to fail.
type disk struct {
	raft.LogStore
	hang atomic.Pointer[chan struct{}]
	fail atomic.Bool
}

func (d *disk) StoreLogs(l []*raft.Log) error {
	if d.fail.Load() {
		return errors.New("input/output error")
	}
	if hang := d.hang.Load(); hang != nil {
		<-*hang
	}
	return d.LogStore.StoreLogs(l)
}

// diskCluster gives every member a disk, by its id.
func diskCluster(t *testing.T) (*cluster, map[string]*disk) {
	disks := make(map[string]*disk)
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Timing.Stall = 500 * time.Millisecond
		id := cfg.ID
		cfg.wrapLogs = func(l raft.LogStore) raft.LogStore {
			disks[id] = &disk{LogStore: l}
			return disks[id]
		}
	})
	return c, disks
}

// The leader's disk hangs: its traffic is cut, another takes over, and what was
// proposed is unknown until then.
func TestHangingDisk(t *testing.T) {
	c, disks := diskCluster(t)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	old := c.leader()
	var others []*member
	for _, m := range c.members {
		if m != old {
			others = append(others, m)
		}
	}
	hang := make(chan struct{})
	disks[old.id].hang.Store(&hang)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := old.group.Propose(ctx, keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
		done <- err
	}()
	if err := failure(t, old.group); !strings.Contains(err.Error(), "hangs") {
		t.Errorf("the owner was told %v", err)
	}
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"), others...)
	cancel()
	if err := <-done; !errors.Is(err, ErrUnknown) {
		t.Errorf("the caller was told %v", err)
	}
	close(hang)
	c.stop(old)
	c.restart(old)
	c.settled(out.Index)
	for _, m := range c.members {
		if n := m.files.rows(t, "t1", "k"); n != 1 {
			t.Errorf("%s has %d effects of one key", m.name, n)
		}
	}
}

func TestFailingDisk(t *testing.T) {
	c, disks := diskCluster(t)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	old := c.leader()
	disks[old.id].fail.Store(true)
	_, err := old.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("the caller was told %v", err)
	}
	if err := failure(t, old.group); !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("the owner was told %v", err)
	}
}

// The answer is lost with the leader, the command is not: the same key gives the
// one effect.
func TestUnknownOutcomeSameKey(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for round := range 3 {
		old := c.leader()
		key := string(rune('a' + round))
		reached := make(chan struct{})
		var once sync.Once
		ctx, cancel := context.WithCancel(testContext(t))
		// The leader gets to apply it, so it is committed; its caller never hears.
		old.files.onAcquire = func(string) { once.Do(func() { cancel(); close(reached) }) }
		_, err := old.group.Propose(ctx, keyed(t, command(t, cmdPut, "t1", put{K: key}), key))
		if err != nil && !errors.Is(err, ErrUnknown) {
			t.Fatalf("told %v", err)
		}
		<-reached
		c.crash(old)
		old.files.onAcquire = nil
		out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: key}), key))
		if !out.Replayed {
			t.Errorf("round %d: a second effect", round)
		}
		c.restart(old)
		c.settled(out.Index)
		c.same("t1")
		if n := old.files.rows(t, "t1", key); n != 1 {
			t.Errorf("round %d: %d effects", round, n)
		}
	}
}

// A deposed leader that has not noticed answers no read; the new one's reads see
// every acknowledged write.
func TestReadIndexOfDeposedLeader(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		// Patient enough to take itself for the leader all through the test.
		cfg.Timing.Lease = cfg.Timing.Heartbeat
	})
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	old := c.leader()
	var others []*member
	var names []string
	for _, m := range c.members {
		if m != old {
			others = append(others, m)
			names = append(names, m.name)
		}
	}
	c.wires.cut(old.name, names...)
	ctx := testContext(t)
	stale := make(chan error, 1)
	go func() {
		for {
			// Whenever the old leader says yes, no write may have been acknowledged
			// elsewhere since.
			if _, err := old.group.ReadIndex(ctx); err != nil {
				stale <- err
				return
			}
		}
	}()
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"), others...)
	if index, err := old.group.ReadIndex(ctx); err == nil {
		t.Errorf("the cut-off leader confirmed index %d after %d was acknowledged elsewhere", index, out.Index)
	}
	if err := <-stale; !errors.Is(err, ErrNotLeader) {
		t.Errorf("the cut-off leader's reads ended with %v", err)
	}
	if index, err := c.leader(others...).group.ReadIndex(ctx); err != nil || index < out.Index {
		t.Errorf("read index %d, %v after write %d", index, err, out.Index)
	}
	c.wires.heal()
	c.settled(out.Index)
	c.same("", "t1")
}

func TestWipedMemberIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.settled(c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o")).Index)
	m := c.members[1]
	c.stop(m)
	if err := os.RemoveAll(filepath.Join(m.dir, "raft")); err != nil {
		t.Fatal(err)
	}
	for _, bootstrap := range []bool{false, true} { // with the log gone and the files there it is no new group's member
		err := c.start(m, bootstrap)
		if err == nil || !strings.Contains(err.Error(), "wiped member") || !strings.Contains(err.Error(), "--init") {
			t.Fatalf("a wiped member came back: %v", err)
		}
	}
	m.group = nil
}

func TestFolderOfAnotherMember(t *testing.T) {
	c := newCluster(t, 3, nil)
	m := c.members[1]
	c.leader()
	c.stop(m)
	m.id = "id9"
	if err := c.start(m, false); err == nil || !strings.Contains(err.Error(), "another member") {
		t.Fatalf("started in another member's folder: %v", err)
	}
	m.group = nil
}

// Heartbeats come through the consumer channel: the library never gets to set
// the handler that would take them aside.
func TestHeartbeatsAreConsumed(t *testing.T) {
	c := newCluster(t, 1, nil)
	tr := c.members[0].group.transport
	tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("taken aside") })
	var iface raft.Transport = tr
	if _, ok := iface.(raft.WithPreVote); !ok {
		t.Error("pre-vote is off")
	}
	if _, ok := iface.(raft.WithClose); !ok {
		t.Error("the library cannot close the transport")
	}
}
