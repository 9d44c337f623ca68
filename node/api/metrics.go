package api

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests *prometheus.CounterVec // by route and status
	denied   *prometheus.CounterVec // by reason
	fenced   *prometheus.CounterVec // by reason
}

func newMetrics(to prometheus.Registerer) metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "celld", Subsystem: "cell", Name: name, Help: help}, labels)
	}
	m := metrics{
		requests: counter("requests_total", "Requests by route and status; route is empty where none matched.", "route", "status"),
		denied:   counter("denied_total", "Requests refused for their context, policy revision or role.", "reason"),
		fenced:   counter("fenced_total", "Requests refused because the tenant is not here at that epoch, or is frozen.", "reason"),
	}
	if to != nil {
		to.MustRegister(m.requests, m.denied, m.fenced)
	}
	return m
}
