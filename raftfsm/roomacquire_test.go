package raftfsm

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/room"
)

// crampedSpace is a Space whose targets' files can't be opened for want of disk
// space, as long as full says so.
type crampedSpace struct {
	Space
	full   atomic.Bool
	denied chan struct{} // gets one for the first time
}

func (s *crampedSpace) Acquire(target string) (*store.File, func(), error) {
	if target != "" && s.full.Load() {
		select {
		case s.denied <- struct{}{}:
		default:
		}
		return nil, nil, fmt.Errorf("tenant %s: %w", target, room.ErrFull)
	}
	return s.Space.Acquire(target)
}

// That a file can't be opened on one replica, for want of disk space, must not
// refuse a command that the others apply: apply waits for the space.
func TestNoSpaceToOpenRefusesNothing(t *testing.T) {
	c, s := fullCluster(t, 1)
	out := c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	m := c.leader()
	f := m.group.fsm
	cramped := &crampedSpace{Space: f.space, denied: make(chan struct{}, 1)}
	cramped.full.Store(true)
	f.mu.Lock()
	f.space = cramped
	f.mu.Unlock()
	data, err := Encode(entry{Version: formatVersion, Commands: []Command{command(t, cmdPut, "t1", put{K: "k"})}})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan []any, 1)
	go func() {
		answered <- f.ApplyBatch([]*raft.Log{{Index: out.Index + 1, Type: raft.LogCommand, Data: data}})
	}()
	<-cramped.denied
	select {
	case got := <-answered:
		t.Fatalf("answered %v while the file could not be opened", got)
	default:
	}
	cramped.full.Store(false)
	s.set(short, m)
	got := (<-answered)[0].([]result)
	if got[0].err != nil {
		t.Errorf("with space again: %v", got[0].err)
	}
}
