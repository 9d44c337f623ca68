package verify

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
	"time"
)

// firstAgain is after how long a target whose replicas differed is marked again.
const firstAgain = time.Minute

// schedule knows when each target is to be marked next. It has no clock: times
// are told, in unix microseconds by the clock that stamps commands.
type schedule struct {
	cycle time.Duration

	mu    sync.Mutex
	plans map[string]*plan
}

type plan struct {
	marked  int64 // the last mark's time; of a target that had none, when it became known
	due     int64
	trouble int // comparisons since the replicas first differed; 0 if they don't
}

func newSchedule(cycle time.Duration) *schedule {
	return &schedule{cycle: cycle, plans: make(map[string]*plan)}
}

// spread is a number from 0 to 1 that is different for each target, and for each
// time of one.
func spread(target string, at int64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(target))
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd // FNV leaves the high bits of similar names alike
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// keep takes in the targets that there are and forgets all others. New ones are
// spread over a cycle that begins now.
func (s *schedule) keep(targets []string, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[string]bool, len(targets))
	for _, target := range targets {
		there[target] = true
		if s.plans[target] == nil {
			s.plans[target] = &plan{marked: now, due: now + int64(spread(target, 0)*float64(s.cycle.Microseconds()))}
		}
	}
	for target := range s.plans {
		if !there[target] {
			delete(s.plans, target)
		}
	}
}

// mark notes that a target was marked at a time. The next time is up to a quarter
// of a cycle early, so that what was marked at once does not stay together.
func (s *schedule) mark(target string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[target]
	if p == nil {
		p = &plan{}
		s.plans[target] = p
	}
	p.marked = at
	p.due = at + int64((1-spread(target, at)/4)*float64(s.cycle.Microseconds()))
	p.again(s.cycle)
}

// judge notes what came of a target's last mark.
func (s *schedule) judge(target string, v Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[target]
	if p == nil {
		return
	}
	switch {
	case v == Equal:
		p.trouble = 0
	case v != Incomplete || p.trouble > 0:
		p.trouble++
		p.again(s.cycle)
	}
}

// again brings the next time forward while there is trouble.
func (p *plan) again(cycle time.Duration) {
	if p.trouble > 0 {
		wait := min(firstAgain<<min(p.trouble-1, 16), cycle)
		p.due = min(p.due, p.marked+wait.Microseconds())
	}
}

// next returns the target that has waited longest for its time to come, false if
// none is due. A time that lies further ahead than a cycle was planned before the
// clock was set back.
func (s *schedule) next(now int64) (target string, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *plan
	for name, p := range s.plans {
		if most := now + s.cycle.Microseconds(); p.due > most {
			p.due = most
		}
		if p.due <= now && (first == nil || p.due < first.due || p.due == first.due && name < target) {
			target, first = name, p
		}
	}
	return target, first != nil
}

// oldest is the time of the mark that lies back furthest, 0 without targets.
func (s *schedule) oldest() (at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.plans {
		if at == 0 || p.marked < at {
			at = p.marked
		}
	}
	return at
}
