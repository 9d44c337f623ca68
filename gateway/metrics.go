package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"celld/gateway/problem"
	"celld/store/fault"
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

// observe is the last thing that happens to a request: one line in the log, one
// count. Neither has a path, a query, a body or a credential.
func (g *Gateway) observe(x *exchange, r *http.Request) {
	took := g.cfg.Clock().Sub(x.begun)
	g.metrics.inFlight.Dec()
	g.metrics.requests.WithLabelValues(x.routeName(), statusText(x.status)).Inc()
	g.metrics.latency.WithLabelValues(x.routeName()).Observe(took.Seconds())
	level, reason := slog.LevelInfo, ""
	if x.err != nil {
		e := fault.As(x.err)
		reason = e.Slug
		switch problem.Status(e.Kind) {
		case http.StatusInternalServerError:
			level = slog.LevelError
		case http.StatusServiceUnavailable:
			level = slog.LevelWarn
		}
	}
	if x.route != nil && (x.route.Name == "health" || x.route.Name == "ready") {
		level = slog.LevelDebug // asked for every few seconds
	}
	log := g.cfg.Logger
	if !log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", x.requestID), slog.String("method", r.Method), slog.String("route", x.routeName()),
		slog.Int("status", x.status), slog.Int64("bytes", x.bytes), slog.Duration("took", took))
	if x.caller.User != "" {
		attrs = append(attrs, slog.String("actor", string(x.caller.User)))
	}
	if t := x.tenant(); t != "" {
		attrs = append(attrs, slog.String("tenant", string(t)), slog.String("cell", string(x.access.Placement.Cell)))
	}
	if x.node != "" {
		attrs = append(attrs, slog.String("node", x.node), slog.Int("attempts", x.attempts))
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if level > slog.LevelInfo {
		attrs = append(attrs, slog.Any("error", x.err))
	}
	log.LogAttrs(context.Background(), level, "request", attrs...)
}
