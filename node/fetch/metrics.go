package fetch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	tenants, bytes, failures prometheus.Counter
	seconds                  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, absent func() int) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "celld", Subsystem: "cell", Name: name, Help: help})
	}
	m := metrics{
		tenants:  counter("fetched_tenants_total", "Tenants' files fetched from other nodes."),
		bytes:    counter("fetched_bytes_total", "Bytes of tenants' files that came from other nodes."),
		failures: counter("fetch_failures_total", "Attempts to fetch a tenant's file that failed."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "celld", Subsystem: "cell", Name: "fetch_seconds", Help: "Time to fetch one tenant's file and catch it up.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 11),
		}),
	}
	if r != nil {
		r.MustRegister(m.tenants, m.bytes, m.failures, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "celld", Subsystem: "cell", Name: "absent_tenants", Help: "Tenants whose file this node lacks.",
		}, func() float64 { return float64(absent()) }))
	}
	return m
}
