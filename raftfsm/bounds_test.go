package raftfsm

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Apply hangs: what fits is queued, the rest is told so at once, a queued command
// can be withdrawn, and closing tells the others that they were not proposed.
func TestQueueIsBounded(t *testing.T) {
	const entries, queue = 1, 3
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Limits.Entries, cfg.Limits.QueueCommands, cfg.Limits.BatchCommands = entries, queue, 1
	})
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	lead := c.leader()
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	lead.files.onAcquire = func(string) { once.Do(func() { close(blocked); <-release }) }
	ctx, cancel := context.WithCancel(testContext(t))
	answers := make(chan error, 16)
	propose := func() {
		go func() {
			_, err := lead.group.Propose(ctx, command(t, cmdPut, "t1", put{K: "k"}))
			answers <- err
		}()
	}
	propose()
	<-blocked
	// One is being applied, one may be in gather's hand, the rest of the queue.
	for range 1 + queue + 4 {
		propose()
	}
	for range 4 {
		if err := <-answers; !errors.Is(err, ErrBusy) || errors.Is(err, context.Canceled) {
			t.Errorf("over the bound: %v", err)
		}
	}
	cancel()
	unknown, withdrawn, late := 0, 0, 0
	for range 1 + 1 + queue {
		switch err := <-answers; {
		case errors.Is(err, ErrUnknown):
			unknown++
		case errors.Is(err, ErrBusy) && errors.Is(err, context.Canceled):
			withdrawn++
		case errors.Is(err, ErrBusy):
			late++ // it came before gather had taken one into its hand
		default:
			t.Errorf("given up: %v", err)
		}
	}
	if unknown != 1 || withdrawn < queue || late > 1 {
		t.Errorf("%d unknown, %d withdrawn, %d late", unknown, withdrawn, late)
	}
	close(release)
	if err := lead.group.WaitApplied(testContext(t), lead.group.Applied()+1); err != nil {
		t.Error(err)
	}
	if n := lead.files.rows(t, "t1", "k"); n != 1 {
		t.Errorf("%d of the commands had an effect", n)
	}
}

func TestCloseAnswersTheQueue(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.Entries, cfg.Limits.BatchCommands = 1, 1 })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	lead := c.leader()
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	lead.files.onAcquire = func(string) { once.Do(func() { close(blocked); <-release }) }
	first, second := make(chan error, 1), make(chan error, 1)
	g := lead.group
	propose := func(answer chan error) {
		_, err := g.Propose(testContext(t), command(t, cmdPut, "t1", put{K: "k"}))
		answer <- err
	}
	go propose(first)
	<-blocked
	go propose(second)
	closed := make(chan struct{})
	go func() { c.stop(lead); close(closed) }()
	<-g.proposer.stopping
	close(release)
	<-closed
	if err := <-first; err != nil {
		t.Errorf("the command on its way: %v", err)
	}
	if err := <-second; !errors.Is(err, ErrNotLeader) {
		t.Errorf("the command behind it: %v", err)
	}
	if _, err := g.Propose(testContext(t), command(t, cmdPut, "t1", put{})); !errors.Is(err, ErrNotLeader) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := g.ReadIndex(testContext(t)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a read after Close: %v", err)
	}
	if err := g.WaitApplied(testContext(t), g.Applied()+1); !errors.Is(err, ErrBehind) {
		t.Errorf("a wait after Close: %v", err)
	}
}

// All members of a process share one registry, and may be opened again.
func TestMetricsOfSeveralMembers(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCluster(t, 3, func(cfg *Config) { cfg.Metrics = registry })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	c.stop(c.members[0])
	c.restart(c.members[0])
	c.settled(c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1")).Index)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]int)
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{
		"celld_raft_state": 3, "celld_raft_term": 3, "celld_raft_applied_index": 3, "celld_raft_apply_seconds": 3,
		"celld_raft_entry_commands": 3, "celld_raft_commands_total": 12, "celld_raft_proposals_total": 21,
	} {
		if series[name] != want {
			t.Errorf("%s has %d series, not %d", name, series[name], want)
		}
	}
}
