package directory

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/store/fault"
)

// Errors of this package. A caller of the API sees them as they are.
var (
	ErrNotFresh        = (&fault.Error{Kind: fault.Unavailable, Slug: "directory-not-fresh", Detail: "this gateway has lost touch with the directory; retry"}).After(time.Second)
	ErrUnauthenticated = &fault.Error{Kind: fault.Unauthenticated, Slug: "unauthenticated", Detail: "no valid credentials; send Authorization: Bearer with a token that is still good"}
	ErrSuspended       = &fault.Error{Kind: fault.Forbidden, Slug: "tenant-suspended", Detail: "the tenant is suspended; ask the operator"}
)

// Config is what a Directory is made of.
type Config struct {
	Name      string  // this gateway, e.g. "G1"; its logical address in the group
	ServerID  string  // its Raft id; "" means Name
	Dir       string  // directory.db and raft/ lie below
	Voters    []Voter // the initial group; used with Bootstrap only
	Bootstrap bool
	// RPC carries requests to https://<gateway name>/internal/directory/...; it
	// resolves the name and checks the peer's identity. nil with one gateway.
	RPC     http.RoundTripper
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// transport, clock, hashing: being written
}

// Open starts the replica. It serves once Ready says so.
func Open(cfg Config) (*Directory, error) { panic("soon") }

// Voter names one initial member of the group.
type Voter struct{ ID, Address string }
