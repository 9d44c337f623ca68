package platform

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/cmd/celld/role"
	"celld/cmd/celld/settings"
	"celld/gateway/problem"
	"celld/node/api"
	"celld/raftfsm"
	"celld/store"
)

// roles are the members that run in this process, and what they share.
type roles struct {
	logger  *slog.Logger
	init    func() bool
	slots   *store.Slots
	files   *store.Descriptors
	metrics *prometheus.Registry
	clock   func() time.Time
	doors   map[string]http.Handler // one for each node; fixed
}

func newRoles(p *Platform) (*roles, error) {
	files, err := store.NewDescriptors()
	if err != nil {
		return nil, err
	}
	r := &roles{logger: p.logger, init: p.forming, slots: store.NewSlots(), files: files, metrics: role.NewRegistry(), clock: p.options.Clock, doors: map[string]http.Handler{}}
	for _, n := range p.plan.nodes {
		r.doors[n.Cell+"/"+n.Name] = &door{}
	}
	return r, nil
}

// door is how gateways of this process reach a node of it, in whichever of its
// lives it is.
type door struct {
	node atomic.Pointer[role.RunningNode]
}

// ServeHTTP implements http.Handler. A node that does not run answers like one
// that does not lead.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := d.node.Load(); n != nil {
		n.Handler().ServeHTTP(w, r)
		return
	}
	problem.EnsureRequestID(w.Header(), r.Header)
	w.Header().Set(api.HeaderLeader, "")
	problem.Write(w, r, raftfsm.ErrNotLeader)
}

func (r *roles) node(ctx context.Context, s settings.Node) (instance, error) {
	d, ok := r.doors[s.Cell+"/"+s.Name].(*door)
	if !ok {
		d = &door{} // one that joined since the start: gateways call it over the wire
	}
	n, err := role.Node(ctx, s, role.Options{Init: r.init(), Logger: r.logger, Nodes: len(r.doors), Slots: r.slots, Descriptors: r.files, Metrics: r.metrics, Clock: r.clock})
	if err != nil {
		return nil, err
	}
	d.node.Store(n)
	return host(n, func() { d.node.CompareAndSwap(n, nil) }), nil
}

func (r *roles) gateway(ctx context.Context, s settings.Gateway) (instance, error) {
	g, err := role.Gateway(ctx, s, role.Options{Init: r.init(), Logger: r.logger, Local: r.doors, Metrics: r.metrics})
	if err != nil {
		return nil, err
	}
	return host(g, func() {}), nil
}

// hosted is a life of a member within this process.
type hosted struct {
	role   running
	gone   func()
	halt   chan context.Context // holds the one stop
	killed chan struct{}
	once   sync.Once
	done   chan struct{}
	err    error // valid after done
}

// running is a gateway or a node.
type running interface {
	Failed() <-chan error
	Close(ctx context.Context) error
}

func host(r running, gone func()) *hosted {
	h := &hosted{role: r, gone: gone, halt: make(chan context.Context, 1), killed: make(chan struct{}), done: make(chan struct{})}
	go h.watch()
	return h
}

var errKilled = errors.New("killed")

func (h *hosted) watch() {
	defer close(h.done)
	select {
	case ctx := <-h.halt:
		h.err = h.role.Close(ctx)
	case err := <-h.role.Failed():
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		h.err = errors.Join(err, h.role.Close(ctx))
	case <-h.killed:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h.err = errors.Join(errKilled, h.role.Close(ctx))
	}
	h.gone()
}

func (h *hosted) ended() <-chan struct{} { return h.done }
func (h *hosted) why() error             { return h.err }
func (h *hosted) pid() int               { return os.Getpid() }

// kill cuts the member short; within one process it cannot be cut off like by
// kill -9.
func (h *hosted) kill() error {
	h.once.Do(func() { close(h.killed) })
	return nil
}

func (h *hosted) stop(ctx context.Context) error {
	select {
	case h.halt <- ctx:
	default:
	}
	<-h.done
	return h.err
}
