package raftfsm

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/store/fault"
	"celld/store/room"
)

// metrics is one member's series. They carry the labels group and member, so
// that several members can live in one process.
type metrics struct {
	registered prometheus.Registerer
	collectors []prometheus.Collector

	batchSeconds  prometheus.Histogram
	batchEntries  prometheus.Histogram
	entryCommands prometheus.Histogram
	commitSeconds prometheus.Histogram
	readRounds    prometheus.Counter

	applied, replayed, refusals, skipped prometheus.Counter
	proposals                            map[string]prometheus.Counter
}

// Outcomes of proposing, as label values.
var proposalOutcomes = [...]string{"ok", "refused", "unknown", "not-leader", "busy", "too-large", "disk-full"}

func newMetrics(cfg *Config) *metrics {
	m := &metrics{proposals: make(map[string]prometheus.Counter)}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "celld", Subsystem: "raft", Name: name, Help: help, Buckets: buckets})
		m.collectors = append(m.collectors, h)
		return h
	}
	seconds := prometheus.ExponentialBuckets(0.0001, 2.5, 12)
	m.batchSeconds = histogram("apply_seconds", "Time to apply one batch of log entries.", seconds)
	m.batchEntries = histogram("apply_batch_entries", "Log entries applied in one batch.", prometheus.ExponentialBuckets(1, 2, 10))
	m.entryCommands = histogram("entry_commands", "Commands gathered into one log entry.", prometheus.ExponentialBuckets(1, 2, 9))
	m.commitSeconds = histogram("commit_seconds", "Time from proposing a log entry until it was applied here.", seconds)

	m.readRounds = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "celld", Subsystem: "raft", Name: "read_rounds_total",
		Help: "Confirmations of leadership made for reads."})
	commands := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "celld", Subsystem: "raft", Name: "commands_total",
		Help: "Commands applied here, by outcome."}, []string{"outcome"})
	m.applied, m.replayed = commands.WithLabelValues("applied"), commands.WithLabelValues("replayed")
	m.refusals, m.skipped = commands.WithLabelValues("refused"), commands.WithLabelValues("skipped")
	proposals := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "celld", Subsystem: "raft", Name: "proposals_total",
		Help: "Commands proposed here, by what the caller was told."}, []string{"outcome"})
	for _, o := range proposalOutcomes {
		m.proposals[o] = proposals.WithLabelValues(o)
	}
	m.collectors = append(m.collectors, m.readRounds, commands, proposals)
	return m
}

// register makes the series visible, with g's state among them.
func (m *metrics) register(g *Group) error {
	if g.cfg.Metrics == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: "celld", Subsystem: "raft", Name: name, Help: help}, value))
	}
	gauge("state", "0 follower, 1 candidate, 2 leader, 3 stopped.", func() float64 { return float64(g.raft.State()) })
	gauge("term", "The current term.", func() float64 { return float64(g.Term()) })
	gauge("applied_index", "The last log entry applied here.", func() float64 { return float64(g.Applied()) })
	gauge("commit_index", "The last log entry known to be committed.", func() float64 { return float64(g.raft.CommitIndex()) })
	gauge("queued_commands", "Commands waiting to be proposed.", func() float64 { return float64(len(g.proposer.queue)) })
	m.registered = prometheus.WrapRegistererWith(prometheus.Labels{"group": g.cfg.Group, "member": g.name}, g.cfg.Metrics)
	for i, c := range m.collectors {
		if err := m.registered.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			return err
		}
	}
	return nil
}

// unregister takes back what register did, so that the member can be opened
// again.
func (m *metrics) unregister() {
	if m.registered == nil {
		return
	}
	for _, c := range m.collectors {
		m.registered.Unregister(c)
	}
}

// applying starts to time a batch; the function that it returns ends it. The
// clock is read for the metric alone.
func (m *metrics) applying() func(entries int) {
	start := time.Now()
	return func(entries int) {
		m.batchSeconds.Observe(time.Since(start).Seconds())
		m.batchEntries.Observe(float64(entries))
	}
}

func (m *metrics) refused(n int) { m.refusals.Add(float64(n)) }

func (m *metrics) proposed(err error) {
	outcome := "refused"
	switch {
	case err == nil:
		outcome = "ok"
	case errors.Is(err, ErrUnknown):
		outcome = "unknown"
	case errors.Is(err, ErrNotLeader):
		outcome = "not-leader"
	case errors.Is(err, ErrBusy):
		outcome = "busy"
	case errors.Is(err, room.ErrFull):
		outcome = "disk-full"
	case fault.Of(err) == fault.TooLarge:
		outcome = "too-large"
	}
	m.proposals[outcome].Inc()
}
