package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"

	"celld/gateway/body"
	"celld/gateway/identity"
	"celld/gateway/pattern"
	"celld/gateway/problem"
	"celld/node/records"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/verify"
	"celld/store/fault"
	"celld/store/tenant"
)

// Headers of the hop between gateway and cell.
const (
	HeaderIndex       = "Celld-Index"       // answer: <epoch>.<log index>
	HeaderMinIndex    = "Celld-Min-Index"   // request: what the answer must not be older than
	HeaderConsistency = "Celld-Consistency" // request: "stale"
	HeaderLeader      = "Celld-Leader"      // with not-leader: the leader's node name, "" if unknown
	HeaderEpoch       = "Celld-Epoch"       // with placement-changed: the epoch that the cell knows
	HeaderReplayed    = "Idempotency-Replayed"
	HeaderKey         = "Idempotency-Key"
)

// Log is the cell's replicated log as the handlers use it.
type Log interface {
	Propose(ctx context.Context, c raftfsm.Command) (raftfsm.Outcome, error)
	ReadIndex(ctx context.Context) (uint64, error)
	WaitApplied(ctx context.Context, index uint64) error
}

// Members is the cell's membership as operators change it. Both methods do nothing
// where what they are to do is done, and refuse with ErrNotLeader elsewhere than on
// the leader.
type Members interface {
	Add(ctx context.Context, m NewMember) error
	Remove(ctx context.Context, node string) error
}

// Digests compares replicas of a tenant at one log entry.
type Digests interface {
	Mark(ctx context.Context, uid string, urgent bool) (mark string, index uint64, err error)
	Result(ctx context.Context, mark string) (verify.Result, error)
}

// Config is what a Server needs; all but Metrics is required.
type Config struct {
	Cell     tenant.CellName
	Node     string
	Log      Log
	Space    *cellfsm.Space
	Digests  Digests
	Verifier func() *identity.Verifier         // nil until the cell has its key
	Ready    func() bool                       // whether this replica may answer at all
	Leader   func() (node string, leader bool) // who leads, as far as known, and whether it is this node
	Status   func() (Status, error)
	Members  Members
	Records  *records.Cache // nil for none
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil for none
}

// Server answers a cell's requests. Its methods may be called from any
// goroutine.
type Server struct {
	cfg       Config
	router    *mux.Router
	routes    map[string]map[string]Route // by path template, by method
	revisions revisions
	metrics   metrics
}

// New makes a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, router: mux.NewRouter().UseEncodedPath().SkipClean(true), routes: make(map[string]map[string]Route)}
	for _, r := range append(Routes(), internalRoutes()...) {
		if s.routes[r.Path] == nil {
			s.routes[r.Path] = make(map[string]Route)
			s.router.NewRoute().Name(r.Path).MatcherFunc(pattern.Matcher(r.Path, pattern.Encoded))
		}
		s.routes[r.Path][r.Method] = r
	}
	s.metrics = newMetrics(cfg.Metrics)
	return s
}

// call is one request on its way through a handler. A handler knows the caller
// by scope alone.
type call struct {
	w         http.ResponseWriter
	r         *http.Request
	requestID string
	route     Route
	scope     tenant.Scope     // of a member's request
	by        identity.Context // of a provisioning request
	vars      map[string]string
	stale     bool // of a read: it may be stale, and the request says so
}

// answer is a successful one.
type answer struct {
	status   int
	record   *records.Entry // one record, from the cache or for it
	content  []byte         // JSON, otherwise
	body     any            // what is rendered where there is neither
	epoch    tenant.Epoch
	index    uint64
	version  cellfsm.Version // for ETag; 0 for none
	location string
	next     string // of a list: the path of the next page
	replayed bool
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r, requestID: problem.EnsureRequestID(w.Header(), r.Header)}
	a, err := s.serve(c)
	if err == nil {
		err = s.write(c, a)
	}
	status := a.status
	if err != nil {
		err = timely(err)
		s.refuse(c, err)
		status = problem.Status(fault.Of(err))
	}
	s.metrics.answered(c.route.Name, status)
}

func (s *Server) serve(c *call) (answer, error) {
	internal := isInternal(c.r)
	if !internal {
		if !s.cfg.Ready() {
			return answer{}, raftfsm.ErrNotLeader
		}
		var err error
		if c.by, err = s.context(c.r); err != nil {
			return answer{}, err
		}
	}
	var match mux.RouteMatch
	if !s.router.Match(c.r, &match) {
		return answer{}, fault.Unknown()
	}
	methods := s.routes[match.Route.GetName()]
	route, ok := methods[c.r.Method]
	if !ok {
		c.w.Header().Set("Allow", allow(methods))
		return answer{}, fault.New(fault.Method, "method-not-allowed", "the path does not have this method")
	}
	c.route, c.vars = route, match.Vars
	if !internal {
		var err error
		if c.scope, err = s.scope(c.by, c.vars["tenant"]); err != nil {
			return answer{}, err
		}
		if err := c.scope.Allow(route.Action); err != nil {
			return answer{}, err
		}
		if c.r.URL.RawQuery != "" && (route.Method != http.MethodGet || c.vars["customer"] != "" || c.vars["invoice"] != "") {
			if err := body.NewQuery(c.r).Done(); err != nil {
				return answer{}, err
			}
		}
	}
	return route.serve(s, c)
}

func allow(methods map[string]Route) string {
	var names []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		if _, ok := methods[m]; ok {
			names = append(names, m)
		}
	}
	return strings.Join(names, ", ")
}

// jsonType is not written to.
var jsonType = []string{"application/json"}

func (s *Server) write(c *call, a answer) error {
	h, content := c.w.Header(), a.content
	h["Content-Type"] = jsonType
	switch {
	case a.record != nil:
		content = a.record.Body
		h["Content-Length"], h["Etag"] = a.record.Length, a.record.ETag
	case content == nil:
		var err error
		if content, err = json.Marshal(a.body); err != nil {
			return fmt.Errorf("encode the answer of %s: %w", c.route.Name, err)
		}
	}
	if a.record == nil {
		h["Content-Length"] = []string{strconv.Itoa(len(content))}
	}
	if a.epoch != 0 {
		b := strconv.AppendUint(make([]byte, 0, 32), uint64(a.epoch), 10)
		h[HeaderIndex] = []string{string(strconv.AppendUint(append(b, '.'), a.index, 10))}
	}
	if a.version != 0 {
		h.Set("Etag", `"`+strconv.FormatInt(int64(a.version), 10)+`"`)
	}
	if a.location != "" {
		h.Set("Location", a.location)
	}
	if a.next != "" {
		h.Set("Link", "<"+a.next+`>; rel="next"`)
	}
	if a.replayed {
		h.Set(HeaderReplayed, "true")
	}
	c.w.WriteHeader(a.status)
	_, _ = c.w.Write(content) // a caller that has gone reads no error either
	return nil
}

// refuse answers with a problem, and says in headers what a gateway acts on.
func (s *Server) refuse(c *call, err error) {
	e := fault.As(err)
	switch {
	case errors.Is(e, raftfsm.ErrNotLeader):
		leader, self := s.cfg.Leader()
		if self {
			leader = "" // elected, but not yet sure of it
		}
		c.w.Header().Set(HeaderLeader, leader)
	case e.Kind == fault.Moved || e.Kind == fault.Fenced:
		if epoch, ok := e.Fields["epoch"].(uint64); ok {
			c.w.Header().Set(HeaderEpoch, strconv.FormatUint(epoch, 10))
		}
		s.metrics.fenced.WithLabelValues(e.Slug).Inc()
	case e.Kind == fault.Unauthenticated || e.Kind == fault.Forbidden || errors.Is(e, ErrStalePolicy):
		s.metrics.denied.WithLabelValues(e.Slug).Inc()
	}
	s.log(c, e)
	problem.Write(c.w, c.r, err)
}

// log writes what went wrong here and what was denied; that a caller asked for
// something impossible is the caller's business.
func (s *Server) log(c *call, e *fault.Error) {
	level := slog.LevelDebug
	switch e.Kind {
	case fault.Internal:
		level = slog.LevelError
	case fault.Unauthenticated, fault.Forbidden:
		level = slog.LevelInfo
	}
	ctx := c.r.Context()
	if !s.cfg.Logger.Enabled(ctx, level) {
		return
	}
	s.cfg.Logger.LogAttrs(ctx, level, "request refused",
		slog.String("request_id", c.requestID), slog.String("route", c.route.Name),
		slog.String("tenant", string(c.scope.Tenant)), slog.Uint64("epoch", uint64(c.scope.Epoch)),
		slog.String("reason", e.Slug), slog.Any("error", e.Err))
}

// timely makes an ended wait what it is to the caller.
func timely(err error) error {
	if fault.Of(err) == fault.Internal && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return fault.New(fault.Unavailable, "timeout", "the answer took too long; retry").Because(err)
	}
	return err
}

func isInternal(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/internal/") }
