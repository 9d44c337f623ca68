package verify

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	verdicts   *prometheus.CounterVec
	divergent  prometheus.Counter
	missed     prometheus.Counter
	bytes      prometheus.Counter
	registered []prometheus.Collector
	registry   prometheus.Registerer
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "celld", Subsystem: "digest", Name: name, Help: help})
	}
	return &metrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "celld", Subsystem: "digest", Name: "checks_total",
			Help: "Comparisons of a target's replicas by this member, by verdict: equal, divergent, undecided, incomplete."}, []string{"verdict"}),
		divergent: counter("divergent_total", "Comparisons in which this member's own file differed from the majority, or no majority agreed."),
		missed:    counter("missed_total", "Marks at which this member has made no digest."),
		bytes:     counter("bytes_total", "Bytes digested."),
	}
}

func (m *metrics) register(v *Verifier) error {
	if m.registry = v.cfg.Metrics; m.registry == nil {
		return nil
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "celld", Subsystem: "digest", Name: "oldest_mark_seconds",
		Help: "How long ago the target was marked that has waited longest, as far as this member knows since it started."}, func() float64 {
		at := v.schedule.oldest()
		if at == 0 {
			return 0
		}
		return v.cfg.Clock().Sub(time.UnixMicro(at)).Seconds()
	})
	for _, c := range []prometheus.Collector{m.verdicts, m.divergent, m.missed, m.bytes, oldest} {
		if err := m.registry.Register(c); err != nil {
			m.unregister()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
	m.registered = nil
}
