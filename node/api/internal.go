package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"

	"celld/gateway/identity"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/mtls"
	"celld/store/fault"
	"celld/store/tenant"
)

// Status is what a node says about itself.
type Status struct {
	Cell        string   `json:"cell"`
	CellKey     string   `json:"cellKey"` // "" until the cell's first leader has made one
	Node        string   `json:"node"`
	Region      string   `json:"region"`
	Leader      string   `json:"leader"` // the node that leads, "" if unknown
	IsLeader    bool     `json:"isLeader"`
	Term        uint64   `json:"term"`
	Applied     uint64   `json:"applied"`
	Ready       bool     `json:"ready"`
	OpenTenants int      `json:"openTenants"` // tenants' files that are open now
	Tenants     int      `json:"tenants"`     // that the cell stores
	Absent      int      `json:"absent"`      // tenants whose files are missing or bad here and have to be fetched
	ServerID    string   `json:"serverId"`    // of this node in the cell's Raft group
	LastIndex   uint64   `json:"lastIndex"`   // of this node's log; 0 for one that no cell has added
	DiskFree    uint64   `json:"diskFree"`    // bytes
	DiskReserve uint64   `json:"diskReserve"` // bytes that are kept free; below them no writes are taken on
	HasRoom     bool     `json:"hasRoom"`     // writes are taken on
	DiskHangs   bool     `json:"diskHangs"`   // a write has not returned for seconds; what is on the disk is not told then
	Members     []Member `json:"members"`
	// MembersIndex is the log entry that made Members what they are,
	// MembersCommitted whether this node knows that it is there to stay.
	MembersIndex     uint64 `json:"membersIndex"`
	MembersCommitted bool   `json:"membersCommitted"`
}

// Member is a member of the cell's Raft group.
type Member struct {
	ID      string `json:"id"`
	Node    string `json:"node"`
	Address string `json:"address,omitempty"` // "" for one that formed the cell: settings name it
	Voter   bool   `json:"voter"`
}

// NewMember is what the leader is told about a node that is to be added.
type NewMember struct {
	Node     string `json:"node"`
	ServerID string `json:"serverId"` // as the node itself says
	Address  string `json:"address"`  // under which the cell's nodes reach it
	Check    bool   `json:"check"`    // only say whether it may be added
}

// Marked answers who has a tenant's replicas compared.
type Marked struct {
	Mark  string `json:"mark"`
	Index uint64 `json:"index"` // the log entry at which they are
}

// Provisioned answers a provisioning.
type Provisioned struct {
	Tenant tenant.ID    `json:"tenantId"`
	UID    tenant.UID   `json:"uid"`
	Epoch  tenant.Epoch `json:"epoch"`
}

// RequirePeer lets through what may come in from the network: gateways
// everywhere, nodes of the same cell where they only look.
func RequirePeer(cell tenant.CellName, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := mtls.PeerIdentity(r.TLS)
		var id mtls.Identity
		if err == nil {
			id, err = mtls.Parse(name)
		}
		looks := r.Method == http.MethodGet && isInternal(r)
		if err != nil || !id.Gateway() && !(looks && id.Cell == string(cell)) {
			http.Error(w, "this port serves gateways", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// provisionTenant creates a tenant's file. Everything about the tenant is in the
// signed context; the request has no body.
func (s *Server) provisionTenant(c *call) (answer, error) {
	by, err := s.context(c.r)
	if err != nil {
		return answer{}, err
	}
	if by.Act != identity.ByProvision || string(by.UID) != c.vars["uid"] {
		return answer{}, identity.ErrBadContext
	}
	body := cellfsm.ProvisionTenant{UID: by.UID, Tenant: by.Tenant, Epoch: by.Epoch, Cell: by.CellKey, Secret: make([]byte, 32)}
	_, _ = rand.Read(body.Secret) // never fails
	cmd, err := raftfsm.NewCommand(cellfsm.ProvisionTenantNumber, "", body)
	if err != nil {
		return answer{}, err
	}
	cmd.Actor = string(by.Actor)
	ctx, cancel := context.WithTimeout(c.r.Context(), proposal)
	defer cancel()
	out, err := s.cfg.Log.Propose(ctx, cmd)
	if err != nil {
		return answer{}, err
	}
	var made cellfsm.Provisioned
	if err := out.Into(&made); err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusOK, body: Provisioned{made.Tenant, made.UID, made.Epoch}, epoch: made.Epoch, index: out.Index,
	}, nil
}

// markTenant has all replicas look at a tenant at one log entry. Like provisioning
// it is a gateway's own act.
func (s *Server) markTenant(c *call) (answer, error) {
	by, err := s.context(c.r)
	if err != nil {
		return answer{}, err
	}
	if by.Act != identity.ByVerify || string(by.UID) != c.vars["uid"] {
		return answer{}, identity.ErrBadContext
	}
	row, err := s.cfg.Space.Tenant(by.UID)
	if err != nil {
		return answer{}, err
	}
	if row.ID != by.Tenant {
		return answer{}, fault.Unknown()
	}
	mark, index, err := s.cfg.Digests.Mark(c.r.Context(), string(by.UID), true)
	return answer{status: http.StatusOK, body: Marked{mark, index}}, err
}

// markWait bounds how long the answer about a mark waits for this replica's digest.
const markWait = time.Second

// markResult tells what this replica has found at a mark.
func (s *Server) markResult(c *call) (answer, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), markWait)
	defer cancel()
	r, err := s.cfg.Digests.Result(ctx, c.vars["mark"])
	return answer{status: http.StatusOK, body: r}, err
}

// byOperator makes sure that a gateway vouches for an operator.
func (s *Server) byOperator(c *call) error {
	by, err := s.context(c.r)
	if err != nil {
		return err
	}
	if by.Act != identity.ByOperator {
		return identity.ErrBadContext
	}
	return nil
}

// memberTime bounds a change of the members at the node; the gateway asks again.
const memberTime = 20 * time.Second

func (s *Server) addMember(c *call) (answer, error) {
	if err := s.byOperator(c); err != nil {
		return answer{}, err
	}
	var in NewMember
	d := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, 4<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return answer{}, fault.New(fault.Invalid, "invalid-body", "the body is no new member").Because(err)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), memberTime)
	defer cancel()
	if err := s.cfg.Members.Add(ctx, in); err != nil {
		return answer{}, err
	}
	return s.status(c)
}

func (s *Server) removeMember(c *call) (answer, error) {
	if err := s.byOperator(c); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), memberTime)
	defer cancel()
	if err := s.cfg.Members.Remove(ctx, c.vars["node"]); err != nil {
		return answer{}, err
	}
	return s.status(c)
}

func (s *Server) status(*call) (answer, error) {
	status, err := s.cfg.Status()
	return answer{status: http.StatusOK, body: status}, err
}
