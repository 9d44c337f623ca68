package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one gateway. There is no series per tenant here: their number is
// bounded by the routes, the statuses and the reasons.
type metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	denied   prometheus.Counter
	retries  *prometheus.CounterVec
	admin    *prometheus.CounterVec
	of       map[string]routeMetrics // by route; fixed
}

// routeMetrics are what nearly every request of a route counts in, found without
// looking labels up.
type routeMetrics struct {
	succeeded prometheus.Counter
	latency   prometheus.Observer
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_gateway_requests_total",
			Help: "Requests of the public API by route and status."}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "celld_gateway_request_seconds",
			Help: "Time to answer, by route.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "celld_gateway_requests_in_flight", Help: "Requests under way."}),
		denied: prometheus.NewCounter(prometheus.CounterOpts{Name: "celld_gateway_tenant_denied_total",
			Help: "Requests for a tenant that is unknown or another's; the two are not told apart."}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_gateway_retries_total",
			Help: "Attempts that were made again, by what the cell answered; placement-changed and not-leader are reroutes."}, []string{"reason"}),
		admin: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_operator_requests_total",
			Help: "Requests of the operator API by route and status."}, []string{"route", "status"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.latency, m.inFlight, m.denied, m.retries, m.admin} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	m.of = make(map[string]routeMetrics)
	for _, r := range append(Routes(), Route{Name: noRoute, Success: http.StatusOK}) {
		m.of[r.Name] = routeMetrics{m.requests.WithLabelValues(r.Name, statusText(r.Success)), m.latency.WithLabelValues(r.Name)}
	}
	return m, nil
}

// noRoute is the label of a request that never came to a route.
const noRoute = "none"

func (x *exchange) routeName() string {
	if x.route == nil {
		return noRoute
	}
	return x.route.Name
}

// statusText avoids an allocation for the statuses that occur.
func statusText(status int) string {
	switch status {
	case http.StatusOK:
		return "200"
	case http.StatusCreated:
		return "201"
	case http.StatusNotFound:
		return "404"
	}
	return strconv.Itoa(status)
}

// observe is the last thing that happens to a request: it is counted, and logged
// where its like is.
func (g *Gateway) observe(x *exchange, r *http.Request) {
	now := g.cfg.Clock()
	took := now.Sub(x.begun)
	g.metrics.inFlight.Dec()
	of := g.metrics.of[x.routeName()]
	if x.route != nil && x.status == x.route.Success {
		of.succeeded.Inc()
	} else {
		g.metrics.requests.WithLabelValues(x.routeName(), statusText(x.status)).Inc()
	}
	of.latency.Observe(took.Seconds())
	g.log(x, r, now, took)
}
