package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a caller whose every call takes as long as it says, by a fake clock.
type server struct {
	takes  func(n int) time.Duration
	class  func(n int) int
	err    error
	calls  *atomic.Int64
	closed bool
}

func (s *server) Call(ctx context.Context) (int, error) {
	n := int(s.calls.Add(1))
	wait(ctx, s.takes(n))
	if s.class != nil {
		return s.class(n), s.err
	}
	return 0, s.err
}

func (s *server) Close() error { s.closed = true; return s.err }

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func callers(n int, calls *atomic.Int64, takes func(int) time.Duration) (all []Caller) {
	for range n {
		all = append(all, &server{takes: takes, calls: calls})
	}
	return all
}

// fixedMeter says that a second of CPU was used, of two by the machine.
type fixedMeter struct{}

func (fixedMeter) Begin() (func() (Usage, error), error) {
	return func() (Usage, error) { return Usage{Own: time.Second, Machine: 2 * time.Second}, nil }, nil
}

func TestClosedCountsEveryAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		all := callers(4, &calls, always(10*time.Millisecond))
		l := Closed{Callers: all, Classes: 1, Warmup: 105 * time.Millisecond, Duration: time.Second, Meter: fixedMeter{}}
		warm, measured, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := measured[0]
		// 100 calls of each caller end in the second; ten before it and one after.
		if m.Calls != 400 || warm.Calls != 44 || uint64(calls.Load()) != m.Calls+warm.Calls || m.Failed != 0 {
			t.Fatalf("measured %d, warm %d of %d calls", m.Calls, warm.Calls, calls.Load())
		}
		if m.PerSecond() != 400 || m.CPUPerCall() != time.Second/400 || m.Latency.Max() != 10*time.Millisecond {
			t.Errorf("%v a second, %v of CPU, at most %v", m.PerSecond(), m.CPUPerCall(), m.Latency.Max())
		}
		if CloseAll(all) != nil || !all[3].(*server).closed {
			t.Error("callers were not closed")
		}
	})
}

func TestClosedTellsClassesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		one := &server{takes: always(10 * time.Millisecond), calls: &calls, class: func(n int) int { return n % 4 / 3 }}
		l := Closed{Callers: []Caller{one}, Classes: 2, Duration: 1005 * time.Millisecond, Meter: fixedMeter{}}
		_, measured, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if measured[0].Calls != 75 || measured[1].Calls != 25 {
			t.Fatalf("%d and %d calls", measured[0].Calls, measured[1].Calls)
		}
		if all := Joined(measured); all.Calls != 100 || all.Elapsed != 1005*time.Millisecond || all.CPU.Own != time.Second {
			t.Fatalf("together %+v", all)
		}
	})
}

func TestLoadStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var calls atomic.Int64
	closed := Closed{Callers: callers(1, &calls, always(time.Hour)), Classes: 1, Warmup: time.Hour, Duration: time.Hour, Meter: fixedMeter{}}
	if _, _, err := closed.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a closed load that was broken off: %v", err)
	}
	open := Open{Streams: []Stream{{Rate: 10, Callers: callers(1, &calls, always(time.Hour))}}, Warmup: time.Hour, Duration: time.Hour, Meter: fixedMeter{}}
	if _, _, err := open.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an open load that was broken off: %v", err)
	}
}

// TestOpenKeepsItsRate has a server that keeps up: each request is made at its
// time and takes what the server takes.
func TestOpenKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		l := Open{Warmup: 10 * time.Second, Duration: 100 * time.Second, Meter: fixedMeter{}, Streams: []Stream{
			{Rate: 80, Callers: callers(40, &calls, always(20*time.Millisecond)), Seed: 1},
			{Rate: 20, Callers: callers(40, &calls, always(30*time.Millisecond)), Seed: 2},
		}}
		warm, measured, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, b := measured[0], measured[1]
		if a.PerSecond() < 77 || a.PerSecond() > 83 || b.PerSecond() < 18 || b.PerSecond() > 22 {
			t.Errorf("%v and %v requests a second, want 80 and 20", a.PerSecond(), b.PerSecond())
		}
		if a.Latency.Max() != 20*time.Millisecond || b.Latency.Max() != 30*time.Millisecond || a.Bad()+b.Bad()+a.Late+b.Late+Joined(warm).Bad() != 0 {
			t.Errorf("%v and %v; %d late, %d bad", a.Latency.Max(), b.Latency.Max(), a.Late+b.Late, a.Bad()+b.Bad())
		}
		if uint64(calls.Load()) != Joined(warm).Calls+a.Calls+b.Calls {
			t.Errorf("%d calls, counted %d, %d, %d", calls.Load(), Joined(warm).Calls, a.Calls, b.Calls)
		}
	})
}

// TestOpenChargesForStandstill has a server that stands still once, for two seconds:
// whoever would have come meanwhile has waited too.
func TestOpenChargesForStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		still := time.Now().Add(5 * time.Second)
		takes := func(int) time.Duration {
			if late := time.Since(still); late >= 0 && late < 2*time.Second {
				return 2*time.Second - late
			}
			return time.Millisecond
		}
		l := Open{Duration: 20 * time.Second, Meter: fixedMeter{}, Streams: []Stream{{Rate: 100, Callers: callers(100, &calls, takes)}}}
		_, measured, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := measured[0]
		if m.Bad() != 0 || m.Late == 0 {
			t.Errorf("%d bad, %d late", m.Bad(), m.Late)
		}
		// A tenth of all requests came in those two seconds and waited for one on
		// average; a closed load of few callers would have noticed a handful.
		if p := m.Latency.Quantile(0.95); p < 500*time.Millisecond || m.Latency.Quantile(0.85) > 10*time.Millisecond {
			t.Errorf("p85 %v, p95 %v", m.Latency.Quantile(0.85), p)
		}
	})
}

// TestOpenBoundsWhatIsInFlight has a server that is far too slow.
func TestOpenBoundsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		l := Open{Duration: 10 * time.Second, Meter: fixedMeter{}, Streams: []Stream{{Rate: 100, Callers: callers(2, &calls, always(time.Second))}}}
		_, measured, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := measured[0]
		// Two at a time for ten seconds, and two that waited at the end.
		if m.Calls > 24 || m.Calls < 18 || m.Unmade+m.Calls < 900 || m.Unmade+m.Calls > 1100 {
			t.Errorf("%d requests made, %d not", m.Calls, m.Unmade)
		}
		if m.Latency.Max() > 3*time.Second {
			t.Errorf("a request waited for %v", m.Latency.Max())
		}
	})
}

func TestFailedCallsAreNoLatencies(t *testing.T) {
	r := NewResult()
	r.count(time.Second, errors.New("first"))
	r.count(time.Second, errors.New("second"))
	r.count(time.Millisecond, nil)
	if r.Calls != 3 || r.Bad() != 2 || r.Good() != 1 || r.Latency.Max() != time.Millisecond || r.FirstErr.Error() != "first" {
		t.Errorf("%+v", r)
	}
}

func TestCountMakesSoManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		r, err := Count(t.Context(), callers(4, &calls, always(10*time.Millisecond)), 102)
		if err != nil {
			t.Fatal(err)
		}
		if r.Calls != 102 || calls.Load() != 102 || r.Elapsed != 260*time.Millisecond || r.Latency.Max() != 10*time.Millisecond {
			t.Errorf("%d calls, counted %d, in %v", calls.Load(), r.Calls, r.Elapsed)
		}
	})
}
