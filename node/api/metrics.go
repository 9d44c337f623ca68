package api

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec        // by route and status
	denied   *prometheus.CounterVec        // by reason
	fenced   *prometheus.CounterVec        // by reason
	ok       map[string]prometheus.Counter // requests by route with status 200; fixed
}

// answered counts a request; what is answered most is found without looking labels
// up.
func (m *metrics) answered(route string, status int) {
	if c := m.ok[route]; c != nil && status == http.StatusOK {
		c.Inc()
		return
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
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
	m.ok = make(map[string]prometheus.Counter)
	for _, r := range append(Routes(), internalRoutes()...) {
		if r.Method == http.MethodGet {
			m.ok[r.Name] = m.requests.WithLabelValues(r.Name, "200")
		}
	}
	if to != nil {
		to.MustRegister(m.requests, m.denied, m.fenced)
	}
	return m
}
