package raftfsm

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// electorate is voters as a test has them answer: each heartbeat waits for a word.
type electorate struct {
	*beats
	asked chan string // "id in term"
	words map[raft.ServerID]chan error
}

func newElectorate(t *testing.T, ids ...raft.ServerID) *electorate {
	t.Helper()
	e := &electorate{asked: make(chan string, 100), words: make(map[raft.ServerID]chan error)}
	for _, id := range ids {
		e.words[id] = make(chan error, 100)
	}
	e.beats = &beats{failed: make(chan struct{}, 1), rest: 20 * time.Millisecond,
		send: func(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) error {
			if len(req.Entries) > 0 || req.PrevLogEntry != 0 || req.LeaderCommitIndex != 0 || to != raft.ServerAddress("at "+id) {
				t.Errorf("%s at %s was sent %+v", id, to, req)
			}
			e.asked <- string(id) + string(rune('0'+req.Term))
			return <-e.words[id]
		}}
	t.Cleanup(func() {
		e.stop()
		for _, word := range e.words {
			close(word)
		}
		e.end()
	})
	return e
}

func (e *electorate) round(term uint64, ids ...raft.ServerID) {
	var voters []raft.Server
	for _, id := range ids {
		voters = append(voters, raft.Server{ID: id, Address: raft.ServerAddress("at " + id)})
	}
	e.begin(term, voters)
}

// expect wants exactly these to have been asked, in any order.
func (e *electorate) expect(t *testing.T, want ...string) {
	t.Helper()
	waits := make(map[string]int)
	for _, w := range want {
		waits[w]++
	}
	for range want {
		select {
		case got := <-e.asked:
			if waits[got]--; waits[got] < 0 {
				t.Fatalf("%s was asked, wanted %v", got, want)
			}
		case <-time.After(testTimeout):
			t.Fatalf("not all of %v were asked", want)
		}
	}
	if len(e.asked) > 0 {
		t.Fatalf("%s was asked too", <-e.asked)
	}
}

// idle waits until id's goroutine has nothing to do.
func (e *electorate) idle(t *testing.T, id raft.ServerID) {
	t.Helper()
	ctx := testContext(t)
	for _, one := range e.order {
		for one.id == id && one.busy.Load() {
			select {
			case <-ctx.Done():
				t.Fatalf("%s still owes an answer", id)
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// TestBeatsAskFew: no more are asked than told, and the others after them; who is
// slow comes last from then on, and is asked again once its answer has come.
func TestBeatsAskFew(t *testing.T) {
	e := newElectorate(t, "a", "b", "c")
	e.round(1, "a", "b", "c")
	e.ask(1)
	e.expect(t, "a1")
	e.askRest()
	e.expect(t, "b1", "c1")
	e.words["b"] <- nil
	e.words["c"] <- nil
	e.idle(t, "b")
	e.idle(t, "c")
	e.round(2, "a", "b", "c")
	e.ask(1)
	e.expect(t, "b2") // a was slow
	e.words["b"] <- nil
	e.idle(t, "b")
	e.askRest()
	e.expect(t, "c2") // and a, which still owes an answer
	e.words["a"] <- nil
	e.expect(t, "a2")
	e.words["a"] <- nil
	e.words["c"] <- nil
	e.idle(t, "a")
	e.idle(t, "c")
	e.round(3, "a", "b", "c")
	e.ask(1)
	e.expect(t, "b3")
	e.words["b"] <- nil
}

// TestBeatsFail: who can't be asked is told of, rests, and is asked afterwards.
func TestBeatsFail(t *testing.T) {
	e := newElectorate(t, "a", "b")
	e.round(1, "a", "b")
	e.ask(1)
	e.expect(t, "a1")
	e.words["a"] <- errors.New("unreachable")
	<-e.failed
	e.askRest()
	e.expect(t, "b1")
	e.words["b"] <- nil
	e.idle(t, "a")
	e.round(2, "a", "b")
	e.ask(2)
	e.expect(t, "a2", "b2")
	e.words["a"] <- nil
	e.words["b"] <- nil
}

// TestBeatsFollowMembers: who is a voter no more is not asked, nor is who had its
// name at another address.
func TestBeatsFollowMembers(t *testing.T) {
	e := newElectorate(t, "a", "b", "c")
	e.round(1, "a", "b")
	e.round(2, "b", "c")
	e.ask(2)
	e.expect(t, "b2", "c2")
	moved := e.order[0]
	e.begin(3, []raft.Server{{ID: "b", Address: "elsewhere"}})
	if len(e.order) != 1 || e.order[0] == moved || e.order[0].address != "elsewhere" {
		t.Errorf("it would ask %+v", e.order)
	}
	e.words["b"] <- nil
	e.words["c"] <- nil
}

// TestRoundsPause: rounds with many readers are apart by what they usually take,
// up to a bound; whoever reads alone, or after a while, waits for nobody.
func TestRoundsPause(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		readers     int
		usual, past time.Duration
		want        time.Duration
	}{
		{0, 0, 0, 0},
		{1, time.Millisecond, 0, 0},
		{crowd - 1, time.Second, 0, 0},
		{crowd, 200 * time.Microsecond, 200 * time.Microsecond, 400 * time.Microsecond},
		{1000, 200 * time.Microsecond, 600 * time.Microsecond, 0},
		{1000, 200 * time.Microsecond, time.Minute, 0},
		{1000, time.Second, maxPace / 4, maxPace - maxPace/4},
	} {
		ri := &readIndex{readers: c.readers, usual: c.usual, begun: now.Add(-c.past)}
		if got := ri.pause(now); got != c.want {
			t.Errorf("after %d readers, a usual round of %s, %s ago: it waits %s, not %s", c.readers, c.usual, c.past, got, c.want)
		}
	}
}

// TestAsManyReadersAsBeforeWaitNoLonger: a round whose readers are as many as the
// last one's begins at once, and what told of that does not speed up the one after.
func TestAsManyReadersAsBeforeWaitNoLonger(t *testing.T) {
	ri := &readIndex{full: make(chan struct{}, 1)}
	for _, readers := range []int{2 * crowd, 2*crowd + 3, 1} {
		for i := range readers {
			if told := len(ri.full) == 1; told != (ri.enough > 0 && i >= ri.enough) {
				t.Errorf("%d readers after a round of %d: told %v", i, ri.enough, told)
			}
			if _, first, err := ri.join(); err != nil || first != (i == 0) {
				t.Fatalf("reader %d: %v, %v", i, first, err)
			}
		}
		if round := ri.take(); round == nil || round.readers != readers || len(ri.full) != 0 || ri.enough != max(crowd, readers) {
			t.Errorf("%d readers: the round is %+v, enough are %d", readers, round, ri.enough)
		}
	}
	if ri.take() != nil {
		t.Error("a round for nobody")
	}
}
