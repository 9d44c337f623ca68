package directory

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store/fault"
	"celld/store/room"
	"celld/store/tenant"
)

// Refusals that callers tell apart. A caller of the API sees them as they are.
var (
	ErrNotFresh        = (&fault.Error{Kind: fault.Unavailable, Slug: "directory-not-fresh", Detail: "this gateway has lost touch with the directory; retry"}).After(time.Second)
	ErrUnauthenticated = dirfsm.ErrUnauthenticated
	ErrSuspended       = dirfsm.ErrSuspended
	ErrLastOwner       = dirfsm.ErrLastOwner
)

// Voter is a member of the first configuration: Address is the gateway's name.
type Voter = raftfsm.Server

// Config is what a Directory is made of. Name, Dir and Transport are required,
// and RPC where there is more than one gateway.
type Config struct {
	Name      string  // this gateway, e.g. "G1"; its logical name in the group
	ServerID  string  // its Raft id; "" means Name. A rebuilt gateway needs a new one
	Dir       string  // directory.db and raft/ lie below; of this directory alone
	Voters    []Voter // the initial group; used with Bootstrap only
	Bootstrap bool

	Transport *raftfsm.Transport // for the group "directory"; closed by Close
	// RPC carries requests to https://<gateway name>/internal/directory/...; it
	// resolves the name and proves the peer's identity. NewRPC makes one.
	RPC http.RoundTripper

	Logger  *slog.Logger          // nil for none
	Metrics prometheus.Registerer // nil for none
	Timing  raftfsm.Timing
	Limits  raftfsm.Limits
	Room    *room.Room // the space left below Dir; nil for no end of it

	Hashing Hashing       // zero fields take the default
	Clock   Clock         // nil for the machine's
	Random  io.Reader     // nil for crypto/rand
	Renew   time.Duration // between renewals of the lease; default 300 ms
}

// Clock is where the directory reads the time and waits for a lease to end. Now
// should have a monotonic reading, as time.Now has.
type Clock interface {
	Now() time.Time
	// After delivers when d has passed; stop ends it early.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

func (c *Config) complete() error {
	if !tenant.ValidID(c.Name) || c.Dir == "" || c.Transport == nil {
		return errors.New("directory: Name, Dir and Transport are required")
	}
	if c.ServerID == "" {
		c.ServerID = c.Name
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = machineClock{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Renew <= 0 {
		c.Renew = 300 * time.Millisecond
	}
	if c.RPC == nil {
		c.RPC = noRPC{}
	}
	c.Hashing.complete()
	return nil
}

// noRPC is the way to the other gateways where there are none.
type noRPC struct{}

func (noRPC) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, notSent{errors.New("there is no way to other gateways")}
}
