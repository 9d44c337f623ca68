package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"celld/store/room"
)

// yielder hands leadership over while this member's disk is short of space: what
// a leader accepts grows on every member, and one that has none left would stop
// applying in the middle of it. Where nobody else has room the member goes on
// leading, so that reads go on; Propose refuses meanwhile.
//
// It owns one goroutine, which stop waits for.
type yielder struct {
	g      *Group
	said   bool // that nobody has room, since the level last changed
	cancel context.CancelFunc
	over   chan struct{}
}

// yieldAgain is how often a short leader looks for somebody with room.
const yieldAgain = time.Second

func newYielder(g *Group) *yielder {
	ctx, cancel := context.WithCancel(context.Background())
	y := &yielder{g: g, cancel: cancel, over: make(chan struct{})}
	go y.run(ctx)
	return y
}

func (y *yielder) run(ctx context.Context) {
	defer close(y.over)
	disk := y.g.cfg.Room
	for {
		changed := disk.Changed()
		var again <-chan time.Time
		if disk.Level() != room.Ample {
			if y.g.IsLeader() && y.g.cfg.HasRoom != nil {
				y.yield(ctx)
			}
			again = time.After(yieldAgain)
		} else {
			y.said = false
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

func (y *yielder) yield(ctx context.Context) {
	log := y.g.cfg.Logger
	servers, err := y.withRoom(ctx)
	for _, s := range servers {
		if err = y.g.transfer(ctx, func() raft.Future { return y.g.raft.LeadershipTransferToServer(s.ID, s.Address) }); err == nil {
			log.Warn("leadership was handed to a member with disk space", "group", y.g.cfg.Group, "to", string(s.ID))
			return
		}
	}
	if !y.said && ctx.Err() == nil && y.g.IsLeader() {
		y.said = true
		log.Warn("no other member has disk space and is at hand: this one goes on leading and refuses writes", "group", y.g.cfg.Group, "error", err)
	}
}

// withRoom asks the other voters whether they have room. The error says why some
// could not tell.
func (y *yielder) withRoom(ctx context.Context) ([]raft.Server, error) {
	latest := y.g.raft.GetConfiguration()
	if err := latest.Error(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, yieldAgain)
	defer cancel()
	var (
		mu   sync.Mutex
		have []raft.Server
		errs []error
		wg   sync.WaitGroup
	)
	for _, s := range latest.Configuration().Servers {
		if s.Suffrage != raft.Voter || string(s.ID) == y.g.cfg.ID {
			continue
		}
		logical, carried := splitAddress(s.Address)
		m := Member{ID: string(s.ID), Name: NameOf(logical), Address: carried, Voter: true}
		wg.Go(func() {
			has, err := y.g.cfg.HasRoom(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
			case has:
				have = append(have, s)
			}
		})
	}
	wg.Wait()
	return have, errors.Join(errs...)
}

func (y *yielder) stop() {
	y.cancel()
	<-y.over
}

// heldBack refuses pre-votes that are not sent.
var errHeldBack = errors.New("held back: this member's disk is short of space, and others go first")

// restraint lets other members go first in an election while this one's disk is
// short of space. It holds pre-votes back for some rounds, not for ever: with
// nobody else there, a leader without room can still serve reads.
type restraint struct {
	room *room.Room
	wait time.Duration

	mu          sync.Mutex
	since, last time.Time // of the rounds that are held back now
}

// restraintRounds is for how many election timeouts others go first. A follower
// waits up to three of them before it asks for votes.
const restraintRounds = 4

func (h *restraint) holds(now time.Time) bool {
	if h == nil || h.room.Level() == room.Ample {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.last) > 2*h.wait { // another election
		h.since = now
	}
	h.last = now
	return now.Sub(h.since) < h.wait
}
