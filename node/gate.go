package node

import (
	"context"
	"net/http"
	"sync"

	"celld/gateway/problem"
	"celld/node/api"
	"celld/raftfsm"
)

// gate counts the requests under way, whichever way they came in, and lets no
// more in once it is shut.
type gate struct {
	next http.Handler

	mu    sync.Mutex
	n     int
	shut  bool
	empty chan struct{} // closed when shut and n is 0
}

func newGate(next http.Handler) *gate { return &gate{next: next, empty: make(chan struct{})} }

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.enter() {
		problem.EnsureRequestID(w.Header(), r.Header)
		w.Header().Set(api.HeaderLeader, "")
		problem.Write(w, r, raftfsm.ErrNotLeader)
		return
	}
	defer g.leave()
	g.next.ServeHTTP(w, r)
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.shut && g.n == 0 {
		close(g.empty)
	}
}

// drain shuts the gate and returns when everybody has left, or with ctx's error.
func (g *gate) drain(ctx context.Context) error {
	g.mu.Lock()
	if !g.shut {
		g.shut = true
		if g.n == 0 {
			close(g.empty)
		}
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
