package directory

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	renewals *prometheus.CounterVec
	changes  *prometheus.CounterVec
	cache    *prometheus.CounterVec
	settling prometheus.Histogram
	lapsed   prometheus.Counter

	hits, misses prometheus.Counter
	registry     prometheus.Registerer
	registered   []prometheus.Collector
}

// newMetrics registers the directory's metrics; with a nil registry they count
// for nobody. They carry the label gateway, so that several can live in one
// process.
func newMetrics(registry prometheus.Registerer, gateway string) (*metrics, error) {
	m := &metrics{
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_directory_renewals_total",
			Help: "Attempts to renew this gateway's lease, by outcome."}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_directory_changes_total",
			Help: "Changes asked for at this gateway, by what became of them."}, []string{"outcome"}),
		cache: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_directory_lookups_total",
			Help: "Lookups of credentials, access and cells, by whether they were remembered."}, []string{"source"}),
		settling: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "celld_directory_settle_seconds",
			Help:    "Time until every gateway was past a change that this one led.",
			Buckets: []float64{.001, .005, .02, .05, .1, .2, .5, 1, 2}}),
		lapsed: prometheus.NewCounter(prometheus.CounterOpts{Name: "celld_directory_lapsed_leases_total",
			Help: "Times that a change had to wait for a gateway's lease to end."}),
	}
	m.hits, m.misses = m.cache.WithLabelValues("memory"), m.cache.WithLabelValues("file")
	if registry == nil {
		return m, nil
	}
	m.registry = prometheus.WrapRegistererWith(prometheus.Labels{"gateway": gateway}, registry)
	for _, c := range []prometheus.Collector{m.renewals, m.changes, m.cache, m.settling, m.lapsed} {
		if err := m.registry.Register(c); err != nil {
			m.unregister()
			return nil, err
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
	m.registered = nil
}

func (m *metrics) renewed(err error) {
	outcome := "held"
	if err != nil {
		outcome = "failed"
	}
	m.renewals.WithLabelValues(outcome).Inc()
}

func (m *metrics) changed(outcome string) { m.changes.WithLabelValues(outcome).Inc() }

func (m *metrics) settled(d time.Duration) { m.settling.Observe(d.Seconds()) }
