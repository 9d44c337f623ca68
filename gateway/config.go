package gateway

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store/room"
	"celld/store/tenant"
)

// Config is what a gateway needs. Name, Dir, Public, Admin, Inner, PKI,
// OperatorToken and SigningKey are required.
type Config struct {
	Name  string // e.g. "G1"
	Dir   string // the directory's replica lies below
	Group Group

	Public net.Listener // the public API; closed by the gateway
	TLS    *tls.Config  // for Public; nil where something in front terminates TLS
	Admin  net.Listener // the operator API; closed by the gateway
	Inner  net.Listener // between gateways, under mutual TLS; closed by the gateway
	PKI    *mtls.PKI

	OperatorToken string             // at least 16 characters
	SigningKey    ed25519.PrivateKey // signs contexts; cells have its public half

	// Local are cell nodes in this very process, by logical name ("C2/n1"). They
	// are called directly.
	Local map[string]http.Handler

	Limits     Limits
	RequestLog RequestLog
	Logger     *slog.Logger     // nil for none
	Metrics    Metrics          // nil for a registry of its own
	Clock      func() time.Time // nil for time.Now

	// Room is the space left below Dir; nil for no end of it. Whoever opened it
	// closes it.
	Room *room.Room

	// StaleReads lets a read that asks to be stale through while the directory is
	// not fresh, by the rights last known. A removal that was answered at another
	// gateway is not known then.
	StaleReads bool

	// Ready is what /readyz waits for beside the gateway's own state; nil for
	// nothing.
	Ready func() error
}

// Metrics is where metrics are registered, and what /metrics answers. A
// *prometheus.Registry is both; a process of several roles gathers more than one.
type Metrics interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Group is the gateway's place in the directory's Raft group.
type Group struct {
	ServerID  string            // unique for all time; "" for Name
	Peers     map[string]string // gateway name -> inner address, itself included
	Voters    []raftfsm.Server  // the first configuration; used with Bootstrap; none means this gateway alone
	Bootstrap bool              // first start of a new group
	Timing    raftfsm.Timing
	Limits    raftfsm.Limits
}

// Limits bounds what a gateway takes on. Zero fields take the default.
type Limits struct {
	TenantRequests int           // requests of one tenant at a time; 256. One user has at most three quarters of them, or 8
	UserRequests   int           // requests of one user at a time; 512
	Logins         int           // failed or not, of one e-mail address at once; then one each 10 s; 10
	LoginsByPeer   int           // of one client address at once; then one a second; 60
	Attempt        time.Duration // one try of a node; 4 s
	Total          time.Duration // all tries of a request; 8 s
	Drain          time.Duration // how long Close waits for requests; 5 s
}

// RequestLog says which requests get a line in the log beside those that failed and
// some of those that were refused. Zero fields take the default.
type RequestLog struct {
	Rate int           // lines a second for requests that went well; 100; negative for none
	Slow time.Duration // one that went well and took as long has a line in any case; 500 ms
}

const (
	maxHeaderBytes = 16 << 10  // of one request, counted by the gateway
	maxHeaders     = 64        // lines of one request
	hardHeaders    = 128 << 10 // beyond this net/http itself answers 431
	minToken       = 16        // characters of an operator token
)

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) complete() error {
	switch {
	case !tenant.ValidID(c.Name):
		return errors.New("gateway: Name must be a letter and up to 31 letters, digits or hyphens")
	case c.Dir == "" || c.Public == nil || c.Admin == nil || c.Inner == nil || c.PKI == nil:
		return errors.New("gateway: Dir, Public, Admin, Inner and PKI are required")
	case len(c.OperatorToken) < minToken:
		return errors.New("gateway: OperatorToken is too short")
	case len(c.SigningKey) != ed25519.PrivateKeySize:
		return errors.New("gateway: SigningKey is no ed25519 key")
	}
	l := &c.Limits
	defaultTo(&l.TenantRequests, 256)
	defaultTo(&l.UserRequests, 512)
	defaultTo(&l.Logins, 10)
	defaultTo(&l.LoginsByPeer, 60)
	defaultTo(&l.Attempt, 4*time.Second)
	defaultTo(&l.Total, 8*time.Second)
	defaultTo(&l.Drain, 5*time.Second)
	defaultTo(&c.RequestLog.Rate, 100)
	defaultTo(&c.RequestLog.Slow, 500*time.Millisecond)
	defaultTo(&c.Group.ServerID, c.Name)
	if len(c.Group.Voters) == 0 {
		c.Group.Voters = []raftfsm.Server{{ID: c.Group.ServerID, Address: c.Name}}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return nil
}
