package verify

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const halfDay = 12 * time.Hour

func micros(d time.Duration) int64 { return d.Microseconds() }

func names(n int) []string {
	out := []string{""}
	for i := range n - 1 {
		out = append(out, fmt.Sprintf("01HZZZ%020d", i))
	}
	return out
}

// members are schedules of nodes that all see the same marks.
type members []*schedule

func (all members) mark(target string, now int64) {
	for _, s := range all {
		s.mark(target, now)
	}
}

// TestSweepIsDaily plays three days: each target is marked at least once in each
// 24 hours, evenly, while the leader changes every few hours, and once a day a
// member that knows nothing is started and leads.
func TestSweepIsDaily(t *testing.T) {
	const n = 1000
	targets := names(n)
	now := micros(1000 * time.Hour)
	start := func() *schedule {
		s := newSchedule(halfDay)
		s.keep(targets, now)
		return s
	}
	all := members{start(), start(), start()}
	last := make(map[string]int64, n)
	worst, busiest := int64(0), 0
	r := rand.New(rand.NewPCG(1, 2))
	leader := 0
	for minute := range 3 * 24 * 60 {
		now = micros(1000*time.Hour + time.Duration(minute)*time.Minute)
		switch {
		case minute%(25*60) == 24*60:
			leader = r.IntN(3)
			all[leader] = start()
		case minute%(5*60) == 0:
			leader = (leader + 1) % 3
		}
		marked := 0
		for target, due := all[leader].next(now); due; target, due = all[leader].next(now) {
			all.mark(target, now)
			if before, seen := last[target]; seen {
				worst = max(worst, now-before)
			}
			last[target] = now
			marked++
		}
		if minute < 24*60 { // a member that knows nothing is slower than the others, who then catch up
			busiest = max(busiest, marked)
		}
	}
	if len(last) != n {
		t.Errorf("%d of %d targets were marked", len(last), n)
	}
	for target, at := range last {
		worst = max(worst, now-at)
		if now-at > micros(24*time.Hour) {
			t.Errorf("%q was last marked %s ago", target, time.Duration(now-at)*time.Microsecond)
		}
	}
	if worst > micros(24*time.Hour) {
		t.Errorf("the longest pause was %s", time.Duration(worst)*time.Microsecond)
	}
	if busiest > 20 {
		t.Errorf("%d targets were marked in one minute, of %d in half a day", busiest, n)
	}
}

// TestClockThatSteps: the clock is set back or forward by three hours, and even by
// years; every target is marked within a cycle of the new time.
func TestClockThatSteps(t *testing.T) {
	for _, step := range []time.Duration{-3 * time.Hour, 3 * time.Hour, -10000 * time.Hour, 10000 * time.Hour} {
		s := newSchedule(halfDay)
		targets := names(50)
		now := micros(20000 * time.Hour)
		s.keep(targets, now)
		for _, target := range targets {
			s.mark(target, now)
		}
		now += micros(step)
		marked := make(map[string]bool)
		for end := now + micros(halfDay) + 1; now < end; now += micros(time.Minute) {
			for target, due := s.next(now); due; target, due = s.next(now) {
				s.mark(target, now)
				marked[target] = true
			}
		}
		if len(marked) != len(targets) {
			t.Errorf("after a step of %s: %d of %d were marked within a cycle", step, len(marked), len(targets))
		}
	}
}

func TestTroubleIsLookedAtAgain(t *testing.T) {
	s := newSchedule(halfDay)
	start := micros(1000 * time.Hour)
	s.keep([]string{"a"}, start)
	s.mark("a", start)
	now, pauses := start, []time.Duration{}
	for _, v := range []Verdict{Incomplete, Divergent, Incomplete, Undecided, Divergent, Equal, Equal} {
		s.judge("a", v)
		for _, due := s.next(now); !due; _, due = s.next(now) {
			now += micros(time.Minute)
		}
		pauses = append(pauses, time.Duration(now-start)*time.Microsecond)
		start = now
		s.mark("a", now)
	}
	for i, most := range []time.Duration{halfDay, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 8 * time.Minute, halfDay} {
		if pauses[i] > most || most == halfDay && pauses[i] < 8*time.Hour {
			t.Errorf("pause %d was %s, want %s", i, pauses[i], most)
		}
	}
	for range 30 {
		s.judge("a", Undecided)
	}
	if s.mark("a", now); s.plans["a"].due > now+micros(halfDay) {
		t.Error("trouble that lasts is looked at less often than what is well")
	}
}

func TestTargetsComeAndGo(t *testing.T) {
	s := newSchedule(halfDay)
	s.keep([]string{"a", "b"}, 1)
	s.mark("c", 5) // seen in the log before it was listed
	s.keep([]string{"b", "c"}, 10)
	if len(s.plans) != 2 || s.plans["c"].marked != 5 || s.oldest() != 1 {
		t.Errorf("%v, oldest %d", s.plans, s.oldest())
	}
	s.judge("gone", Divergent)
	if _, due := newSchedule(halfDay).next(1); due || len(s.plans) != 2 {
		t.Error("what is not there is due")
	}
}
