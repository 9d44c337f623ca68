package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"celld/store/fault"
)

func TestWritesAreOnEveryMember(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t2"}), "o2"))
	ctx := testContext(t)
	lead := c.leader()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			target := fmt.Sprintf("t%d", 1+i%2)
			out, err := lead.group.Propose(ctx, command(t, cmdPut, target, put{K: "k", V: int64(i)}))
			if err != nil {
				t.Errorf("put %d: %v", i, err)
				return
			}
			var v int64
			if err := out.Into(&v); err != nil || v != int64(i) || out.Replayed || out.Index == 0 {
				t.Errorf("put %d: outcome %+v, %v", i, out, err)
			}
		})
	}
	wg.Wait()
	index, err := lead.group.ReadIndex(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.settled(index)
	c.same("", "t1", "t2")
	for _, m := range c.members {
		if n := m.files.rows(t, "t1", "k"); n != 100 {
			t.Errorf("%s has %d of 100 rows", m.name, n)
		}
		if !m.group.Ready() {
			t.Errorf("%s is not ready", m.name)
		}
		if m != lead {
			if _, err := m.group.Propose(ctx, command(t, cmdPut, "t1", put{})); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a follower's Propose: %v", err)
			}
			if _, err := m.group.ReadIndex(ctx); !errors.Is(err, ErrNotLeader) {
				t.Errorf("a follower's ReadIndex: %v", err)
			}
		}
		if id, name, ok := m.group.Leader(); !ok || id != lead.id || name != lead.name {
			t.Errorf("%s takes %s, %s for the leader", m.name, id, name)
		}
	}
	if s, err := lead.group.Servers(); err != nil || len(s) != 3 || !s[0].Voter || s[0].Name != "C2/n1" {
		t.Errorf("servers %v, %v", s, err)
	}
	if since, ok := lead.group.LeaderSince(); !ok || since.IsZero() {
		t.Error("the leader does not know since when")
	}
}

// TestReadyAfterReplay: a member that was away is ready when it has applied what was
// committed before it came back, not when the first entries of that have come.
func TestReadyAfterReplay(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	away := c.members[2]
	if c.leader() == away {
		away = c.members[1]
	}
	c.stop(away)
	var last uint64
	for i := range 2 * maxAppendEntries {
		last = c.must(command(t, cmdPut, "t1", put{K: "k", V: int64(i)})).Index
	}
	c.restart(away)
	for ctx := testContext(t); !away.group.Ready(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("never ready")
		}
	}
	if at := away.group.Applied(); at < last {
		t.Errorf("ready at %d, with all up to %d committed before it came back", at, last)
	}
}

func TestLeaderDies(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	c.must(keyed(t, command(t, cmdPut, "t1", put{K: "before"}), "1"))
	old := c.leader()
	c.crash(old)
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "after"}), "2"))
	c.settled(out.Index)
	c.restart(old)
	c.settled(out.Index)
	c.same("", "t1")
	for _, m := range c.members {
		if m.files.rows(t, "t1", "before") != 1 || m.files.rows(t, "t1", "after") != 1 {
			t.Errorf("%s lacks a row", m.name)
		}
	}
}

func TestRestartOfAll(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for i := range 20 {
		c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k", V: int64(i)}), fmt.Sprint(i)))
	}
	for range 2 {
		for _, m := range c.members {
			c.crash(m)
		}
		for _, m := range c.members {
			c.restart(m)
		}
		lead := c.leader()
		index, err := lead.group.ReadIndex(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		c.settled(index)
		c.same("", "t1")
		if n := lead.files.rows(t, "t1", "k"); n != 20 {
			t.Fatalf("%d of 20 rows after a restart", n)
		}
		if out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k", V: 3}), "3")); !out.Replayed {
			t.Error("a key was forgotten")
		}
	}
}

func TestTransfer(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.leader()
	if err := old.group.Transfer(testContext(t)); err != nil {
		t.Fatal(err)
	}
	var others []*member
	for _, m := range c.members {
		if m != old {
			others = append(others, m)
		}
	}
	c.leader(others...)
}

func TestSingleMember(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	index, err := c.members[0].group.ReadIndex(testContext(t))
	if err != nil || index < out.Index {
		t.Fatalf("read index %d, %v; the write had %d", index, err, out.Index)
	}
	c.crash(c.members[0])
	c.restart(c.members[0])
	if c.leader(); c.members[0].files.rows(t, "t1", "k") != 1 {
		t.Fatal("the row is gone")
	}
}

func TestRefusalLeavesNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	lead := c.leader()
	before := lead.files.control(t, "t1")
	for range 3 {
		_, err := lead.group.Propose(testContext(t), keyed(t, command(t, cmdRefuse, "t1", put{K: "no"}), "2"))
		if f := fault.As(err); f.Kind != fault.Conflict || f.Slug != "no" || f.Detail != "not this one" {
			t.Fatalf("refused with %v", err)
		}
	}
	if after := lead.files.control(t, "t1"); after != before {
		t.Errorf("control row %+v became %+v", before, after)
	}
	if lead.files.rows(t, "t1", "no") != 0 {
		t.Error("a refused row is there")
	}
	// The key was not stored: it may yet be used.
	out, err := lead.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "yes"}), "2"))
	if err != nil || out.Replayed {
		t.Errorf("the refused command's key: %+v, %v", out, err)
	}
	if _, err := lead.group.Propose(testContext(t), command(t, cmdPut, "t99", put{})); fault.Of(err) != fault.Moved {
		t.Errorf("a missing target: %v", err)
	}
}

func TestOneEffectPerKey(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	lead := c.leader()
	var wg sync.WaitGroup
	var mu sync.Mutex
	first, replays := 0, 0
	for range 50 {
		wg.Go(func() {
			out, err := lead.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "k", V: 8}), "1"))
			var v int64
			if err != nil || out.Into(&v) != nil || v != 8 {
				t.Errorf("outcome %+v, %v", out, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if out.Replayed {
				replays++
			} else {
				first++
			}
		})
	}
	wg.Wait()
	if first != 1 || replays != 49 || lead.files.rows(t, "t1", "k") != 1 {
		t.Errorf("%d effects, %d replays, %d rows", first, replays, lead.files.rows(t, "t1", "k"))
	}
	_, err := lead.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "k", V: 9}), "1"))
	if !errors.Is(err, ErrKeyReused) {
		t.Errorf("another payload: %v", err)
	}
	if ctl := lead.files.control(t, "t1"); ctl.Sequence != 1 {
		t.Errorf("sequence %d after one effect", ctl.Sequence)
	}
}

func TestTooLarge(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	big := make([]byte, maxEntryBytes)
	_, err := c.leader().group.Propose(testContext(t), command(t, cmdPut, "t1", put{K: string(big)}))
	if fault.Of(err) != fault.TooLarge {
		t.Errorf("over the bound: %v", err)
	}
	// At the bound it goes, alone in its entry.
	fits := command(t, cmdPut, "t1", put{})
	for n := len(big); ; n-- {
		fits = command(t, cmdPut, "t1", put{K: string(big[:n])})
		fits.At = c.members[0].group.cfg.Clock().UnixMicro()
		if b, err := Encode(fits); err != nil || len(b)+entryOverhead <= maxEntryBytes {
			break
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := c.leader().group.Propose(testContext(t), fits); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestContextEnds(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	lead := c.leader()
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	lead.files.onAcquire = func(target string) {
		if target == "t1" {
			once.Do(func() { close(blocked); <-release })
		}
	}
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := lead.group.Propose(ctx, command(t, cmdPut, "t1", put{K: "k"}))
		done <- err
	}()
	<-blocked // the command is being applied
	cancel()
	if err := <-done; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("proposed and then given up: %v", err)
	}
	close(release)
	if _, err := lead.group.Propose(ctx, command(t, cmdPut, "t1", put{K: "k2"})); err == nil {
		t.Error("an ended context was not noticed")
	}
}
