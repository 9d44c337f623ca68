package raftfsm

import (
	"testing"
	"time"
)

// The watchdog counts only time in which the process ran: a tick that comes late
// does not count, however late it is.
func TestWatchdog(t *testing.T) {
	const step = time.Hour // no timer fires in this test
	for name, c := range map[string]struct {
		after []time.Duration // from tick to tick
		hung  bool
	}{
		"time is over":                 {[]time.Duration{step, step, step}, true},
		"a little late each time":      {[]time.Duration{step + step/2, step + step/2, step + step/2}, true},
		"not yet":                      {[]time.Duration{step, step}, false},
		"the process stood still":      {[]time.Duration{100 * step, step, step}, false},
		"it stood still and went on":   {[]time.Duration{step, 100 * step, step, step}, true},
		"it stood still all the while": {[]time.Duration{9 * step, 9 * step, 9 * step, 9 * step}, false},
	} {
		t.Run(name, func(t *testing.T) {
			hung := 0
			w := watchdog{step: step, left: 3, hung: func() { hung++ }}
			var now time.Time
			w.start(now)
			for _, d := range c.after {
				now = now.Add(d)
				w.tick(now)
			}
			if (hung == 1) != c.hung || hung > 1 {
				t.Errorf("it called %d times", hung)
			}
			w.stop()
			had := hung
			for range 3 {
				now = now.Add(step)
				w.tick(now)
			}
			if hung != had {
				t.Error("it called after its stop")
			}
		})
	}
}
