package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/mtls"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	// HeaderAsOf tells at which index a tenant was found to be gone.
	HeaderAsOf = "Celld-As-Of"

	pathPrefix, pathSuffix = "/internal/tenants/", "/file"

	// maxSending is how many files are sent at a time.
	maxSending = 4
	// pieceTime bounds how long one piece takes to go out or come in.
	pieceTime = 30 * time.Second
	// leastPace is what who takes a file must keep up, in bytes a second.
	leastPace = 1 << 20
)

func pathOf(uid tenant.UID, least uint64) string {
	q := url.Values{"min": {strconv.FormatUint(least, 10)}}
	return pathPrefix + string(uid) + pathSuffix + "?" + q.Encode()
}

// IsPath reports whether a request is for a Server.
func IsPath(path string) bool {
	return strings.HasPrefix(path, pathPrefix) && strings.HasSuffix(path, pathSuffix)
}

// Limits bounds the transfers of a node. Zero fields take the default.
type Limits struct {
	Parallel       int   // files fetched at a time; default 3
	BytesPerSecond int64 // fetched, and as many sent; default 64 MiB
}

func (l Limits) parallel() int {
	if l.Parallel <= 0 {
		return 3
	}
	return l.Parallel
}

// limiter lets pieces through.
func (l Limits) limiter() *rate.Limiter {
	n := l.BytesPerSecond
	if n <= 0 {
		n = 64 << 20
	}
	return rate.NewLimiter(rate.Limit(n), int(max(n/8, pieceBytes)))
}

// ServerConfig is what a Server needs; all but Limits is required.
type ServerConfig struct {
	Cell    tenant.CellName
	Space   *cellfsm.Space
	Applied func() uint64 // what the node has applied
	Limits  Limits
	Logger  *slog.Logger
}

// Server gives this node's files to the cell's other nodes.
type Server struct {
	cfg     ServerConfig
	slots   chan struct{}
	limiter *rate.Limiter
}

// NewServer makes a server.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, slots: make(chan struct{}, maxSending), limiter: cfg.Limits.limiter()}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := problem.EnsureRequestID(w.Header(), r.Header)
	r = r.WithContext(problem.ContextWithRequestID(r.Context(), id))
	begun, err := s.serve(w, r)
	if err == nil {
		return
	}
	s.cfg.Logger.Info("a tenant's file was not sent", "request_id", id, "path", r.URL.Path, "begun", begun, "error", err)
	if begun {
		panic(http.ErrAbortHandler) // half a file must not look like a whole one
	}
	problem.Write(w, r, err)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) (begun bool, err error) {
	if !s.isPeer(r) {
		return false, fault.New(fault.Forbidden, "not-a-peer", "only nodes of the same cell fetch files")
	}
	uid := tenant.UID(strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, pathPrefix), pathSuffix))
	least, err := strconv.ParseUint(r.URL.Query().Get("min"), 10, 63)
	if r.Method != http.MethodGet || !uid.Valid() || err != nil {
		return false, fault.New(fault.Invalid, "invalid-parameter", "ask for %s{uid}%s?min=N", pathPrefix, pathSuffix)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return false, raftfsm.ErrBusy
	}
	asOf := s.cfg.Applied()
	if asOf < least {
		return false, raftfsm.ErrBehind
	}
	row, err := s.cfg.Space.Tenant(uid)
	if errors.Is(err, cellfsm.ErrNotHere) {
		w.Header().Set(HeaderAsOf, strconv.FormatUint(asOf, 10))
		return false, fault.Unknown()
	}
	if err != nil {
		return false, err
	}
	f, release, err := s.cfg.Space.Acquire(string(uid))
	if err != nil {
		return false, err
	}
	defer release()
	begun, err = s.send(w, r, f, row, asOf)
	s.cfg.Space.Noticed(uid, err)
	return begun, err
}

func (s *Server) isPeer(r *http.Request) bool {
	name, err := mtls.PeerIdentity(r.TLS)
	if err != nil {
		return false
	}
	id, err := mtls.Parse(name)
	return err == nil && id.Cell == string(s.cfg.Cell)
}

// send streams one state of the file, at an index of asOf or later.
func (s *Server) send(w http.ResponseWriter, r *http.Request, f *store.File, row cellfsm.Tenant, asOf uint64) (begun bool, err error) {
	pin, err := f.Pin()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pin.Close()) }()
	size, pages, err := pin.Pages(r.Context().Done())
	if err != nil {
		return false, err
	}
	h := Header{
		Version: streamVersion, UID: row.UID, Tenant: row.ID, Epoch: pin.Control().Epoch, Folder: row.Folder,
		AsOf: asOf, PageSize: uint32(size), Pages: pages,
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute+time.Duration(h.bytes()/leastPace)*time.Second)
	defer cancel()
	out, err := newSender(w, h)
	if err != nil {
		return true, err
	}
	deadline := http.NewResponseController(w)
	buf := make([]byte, max(pieceBytes, size)/size*size)
	for first := uint32(1); first <= pages; {
		n := min(uint32(len(buf)/size), pages-first+1)
		piece := buf[:int(n)*size]
		if err := s.limiter.WaitN(ctx, len(piece)); err != nil {
			return true, fmt.Errorf("sending took too long: %w", err)
		}
		if err := pin.ReadPages(ctx.Done(), size, first, piece); err != nil {
			return true, err
		}
		if err := deadline.SetWriteDeadline(time.Now().Add(pieceTime)); err != nil {
			return true, err
		}
		if err := out.piece(piece); err != nil {
			return true, err
		}
		first += n
	}
	return true, out.end()
}
