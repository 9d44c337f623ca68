package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"celld/gateway/problem"
	"celld/store/fault"
)

// requestLog decides which requests get a line in the log: each that failed in the
// gateway, each that went well and was slow, and of the others so many a second, of
// those that were refused and of those that went well each for themselves. So a
// quiet gateway logs every request, and a busy or flooded one spends next to nothing
// on it; how many were left out stands in the next line of the same kind.
type requestLog struct {
	slow    time.Duration // from here on a request that went well is logged in any case
	well    lines
	refused lines
}

// refusedLines is how many requests a second that were refused have a line. They
// cost whoever sends them nothing, so they have a bound of their own.
const refusedLines = 100

// lines counts the lines of one kind of request.
type lines struct {
	rate int64 // a second

	second  atomic.Int64 // for which written counts
	written atomic.Int64
	leftOut atomic.Int64 // since the last line that said so
}

// next reports whether a request gets a line, and how many before it got none.
func (l *lines) next(now time.Time) (leftOut int64, ok bool) {
	second := now.Unix()
	if last := l.second.Load(); last != second && l.second.CompareAndSwap(last, second) {
		l.written.Store(0)
	}
	if l.written.Load() >= l.rate || l.written.Add(1) > l.rate {
		l.leftOut.Add(1)
		return 0, false
	}
	return l.leftOut.Swap(0), true
}

// kind is whose lines a request counts among; nil for one that has a line in any
// case.
func (l *requestLog) kind(level slog.Level, status int, slow bool) *lines {
	switch {
	case level >= slog.LevelError:
		return nil
	case status >= http.StatusBadRequest:
		return &l.refused
	case level > slog.LevelInfo || slow:
		return nil
	}
	return &l.well
}

// levelOf is how loud a request's line is, and the reason of a refusal.
func (x *exchange) levelOf() (level slog.Level, reason string) {
	if x.err == nil {
		if x.route != nil && x.route.quiet() {
			return slog.LevelDebug, "" // asked for every few seconds
		}
		return slog.LevelInfo, ""
	}
	e := fault.As(x.err)
	switch problem.Status(e.Kind) {
	case http.StatusInternalServerError:
		return slog.LevelError, e.Slug
	case http.StatusServiceUnavailable:
		return slog.LevelWarn, e.Slug
	}
	return slog.LevelInfo, e.Slug
}

// quiet reports whether a route is what monitoring asks for.
func (r *Route) quiet() bool { return r.Pattern == "/healthz" || r.Pattern == "/readyz" }

// log writes the request's line, if it gets one. The line has no path, no query, no
// body and no credential.
func (g *Gateway) log(x *exchange, r *http.Request, now time.Time, took time.Duration) {
	level, reason := x.levelOf()
	log := g.cfg.Logger
	if !log.Enabled(context.Background(), level) {
		return
	}
	slow := took >= g.requests.slow
	var leftOut int64
	if kind := g.requests.kind(level, x.status, slow); kind != nil {
		var ok bool
		if leftOut, ok = kind.next(now); !ok {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs, slog.String("request_id", x.requestID), slog.String("method", r.Method), slog.String("route", x.routeName()),
		slog.Int("status", x.status), slog.Int64("bytes", x.bytes), slog.Duration("took", took))
	if slow {
		attrs = append(attrs, slog.Bool("slow", true))
	}
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
	if leftOut > 0 {
		attrs = append(attrs, slog.Int64("left_out", leftOut))
	}
	log.LogAttrs(context.Background(), level, "request", attrs...)
}
