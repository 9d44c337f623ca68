package gateway

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"celld/store/fault"
	"celld/store/tenant"
)

// gate bounds how many requests of one key are under way. Its map holds only keys
// with requests.
type gate[K comparable] struct {
	name  string // of the limit, as the caller is told
	limit int

	mu    sync.Mutex
	count map[K]int
}

func newGate[K comparable](name string, limit int) *gate[K] {
	return &gate[K]{name: name, limit: limit, count: make(map[K]int)}
}

// share is one user in one tenant.
type share struct {
	tenant tenant.UID
	user   tenant.UserID
}

// mostOf is how many of a tenant's places one user may take, so that no member
// shuts the others out. Most tenants' load comes from one service's user, so it is
// most of them.
func mostOf(places int) int { return max(8, places*3/4) }

// enter lets a request in or refuses it; whoever was let in leaves once.
func (g *gate[K]) enter(key K) error {
	g.mu.Lock()
	n := g.count[key]
	if n < g.limit {
		g.count[key] = n + 1
	}
	g.mu.Unlock()
	if n < g.limit {
		return nil
	}
	return fault.New(fault.Quota, "too-many-requests", "at most %d requests may be under way at a time; retry", g.limit).
		With("limit", g.name).With("value", g.limit).After(time.Second)
}

func (g *gate[K]) leave(key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.count[key]; n > 1 {
		g.count[key] = n - 1
	} else {
		delete(g.count, key)
	}
}

// maxBuckets bounds each generation of a throttle's buckets.
const maxBuckets = 1 << 14

// throttle is a token bucket for each key, in two generations: a key that was not
// used for a whole generation starts anew with a full bucket.
type throttle struct {
	name  string
	burst int
	every time.Duration // one token
	now   func() time.Time

	mu         sync.Mutex
	young, old map[string]*rate.Limiter
}

func newThrottle(name string, burst int, every time.Duration, now func() time.Time) *throttle {
	return &throttle{name: name, burst: burst, every: every, now: now, young: make(map[string]*rate.Limiter)}
}

// take takes a token of key's, or refuses and says when there will be one.
func (t *throttle) take(key string) error {
	t.mu.Lock()
	bucket, ok := t.young[key]
	if !ok {
		if bucket = t.old[key]; bucket == nil {
			bucket = rate.NewLimiter(rate.Every(t.every), t.burst)
		}
		if len(t.young) >= maxBuckets {
			t.old, t.young = t.young, make(map[string]*rate.Limiter)
		}
		t.young[key] = bucket
	}
	t.mu.Unlock()
	if bucket.AllowN(t.now(), 1) {
		return nil
	}
	return fault.New(fault.Quota, "too-many-attempts", "too many attempts to log in; wait").
		With("limit", t.name).With("value", t.burst).After(t.every)
}

// peerOf is the client's address as the connection has it. Headers about it are
// not believed: anyone can send them.
func peerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String() // a client has the whole of its /64
	}
	return host
}

func foldEmail(s string) string { return strings.ToLower(s) }
