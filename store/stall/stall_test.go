package stall

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// by is a Watch whose looks the test makes itself, at times of its choice.
type by struct {
	*Watch
	now time.Time
}

func newBy() *by {
	b := &by{now: time.Now()}
	b.Watch = &Watch{calls: make(map[*call]struct{}), hangs: make(chan struct{}), asked: b.now}
	b.cfg = Config{Limit: 5 * time.Second}
	return b
}

// looks makes n looks, each so long after it was asked for.
func (b *by) looks(n int, after time.Duration) {
	for range n {
		b.now = b.now.Add(after)
		b.look(b.now)
		b.ask(b.now)
	}
}

func TestACallThatDoesNotReturn(t *testing.T) {
	b := newBy()
	returns := b.Begin("COMMIT", "good.db", Short)
	b.looks(4, time.Second)
	returns()
	b.Begin("COMMIT", "t1.db", Short)
	b.looks(4, time.Second)
	if b.Err() != nil {
		t.Fatalf("told before its time: %v", b.Err())
	}
	b.looks(1, time.Second)
	first := b.Err()
	if first == nil || !strings.Contains(first.Error(), "COMMIT of t1.db") {
		t.Fatalf("told %v", first)
	}
	<-b.Hangs()
	b.Begin("COMMIT", "t2.db", Short)
	b.looks(20, time.Second)
	if b.Err() != first {
		t.Errorf("told another: %v", b.Err())
	}
}

func TestLongCallsHaveMorePatience(t *testing.T) {
	b := newBy()
	b.Begin("checkpoint", "t1.db", Long)
	b.looks(14, time.Second)
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	if b.looks(1, time.Second); b.Err() == nil {
		t.Fatal("never told")
	}
}

// The process is stopped again and again while a call is under way, or goes on
// slowly: no disk is accused.
func TestAProcessThatStoodStill(t *testing.T) {
	b := newBy()
	returns := b.Begin("COMMIT", "t1.db", Short)
	for range 100 {
		b.looks(1, time.Hour)
	}
	b.looks(50, 2*time.Second)
	b.looks(4, 1900*time.Millisecond)
	returns()
	b.looks(10, time.Second)
	if b.Err() != nil {
		t.Fatalf("told %v", b.Err())
	}
}

func TestGoroutineLooksAndMetricsTell(t *testing.T) {
	registry := prometheus.NewRegistry()
	w, err := New(Config{Limit: 50 * time.Millisecond, Member: "C2/n1", Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	w.Begin("COMMIT", "t1.db", Short)
	<-w.Hangs()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if values["celld_disk_hangs"] != 1 || values["celld_disk_waiting_seconds"] <= 0 {
		t.Errorf("metrics tell %v", values)
	}
	w.Close()
	w.Close()
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("%d series are left, %v", len(families), err)
	}
}

func TestNilWatchesNothing(t *testing.T) {
	var w *Watch
	w.Begin("COMMIT", "t1.db", Short)()
	w.Close()
	if w.Err() != nil || w.Hangs() != nil || w.Waiting() != 0 {
		t.Error("a nil Watch has something to say")
	}
}
