package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"celld/store/fault"
	"celld/store/tenant"
)

// Header is the request header that carries the token to the cell.
const Header = "Celld-Context"

const (
	// Lifetime is how long a context is good for, from the moment of signing.
	Lifetime = 15 * time.Second
	// Leeway is how far a cell's clock may differ from a gateway's.
	Leeway = 5 * time.Second

	// reuse is how long a signed context is handed out again. What is left of
	// Lifetime covers the hop with its retries.
	reuse = 4 * time.Second
	// cached bounds each cache, in entries.
	cached = 1 << 14
)

// Act says on whose authority a context acts.
type Act string

const (
	// ByMember is a member's own request; the role decides.
	ByMember Act = "member"
	// ByProvision is the gateway's own act of creating the tenant's file.
	ByProvision Act = "provision"
	// ByOperator is an operator's act on the cell itself, for which the gateway
	// vouches. It names no tenant.
	ByOperator Act = "operator"
	// ByVerify is the gateway's own act of having the tenant's replicas compared.
	ByVerify Act = "verify"
)

// Context is what one signed context says. It is comparable.
type Context struct {
	Gateway  string // who vouches; filled in by Sign
	Cell     tenant.CellName
	CellKey  tenant.CellKey
	Act      Act
	Actor    tenant.UserID
	Tenant   tenant.ID
	UID      tenant.UID
	Role     tenant.Role
	Revision tenant.Revision
	Epoch    tenant.Epoch
}

// Scope is the member's authority that the context carries.
func (c Context) Scope() (tenant.Scope, error) {
	if c.Act != ByMember {
		return tenant.Scope{}, fault.New(fault.Forbidden, "no-scope", "the context is not a member's")
	}
	s := tenant.Scope{Tenant: c.Tenant, UID: c.UID, Epoch: c.Epoch, Actor: c.Actor, Role: c.Role, Revision: c.Revision}
	return s, s.Check()
}

// complete reports whether nothing that the act needs is missing.
func (c Context) complete() bool {
	if c.Cell == "" || c.CellKey == "" || c.Actor == "" {
		return false
	}
	if c.Act == ByOperator {
		return c.Tenant == "" && c.UID == "" && c.Epoch == 0 && c.Role == 0 && c.Revision == 0
	}
	if c.Tenant == "" || !c.UID.Valid() || c.Epoch == 0 {
		return false
	}
	switch c.Act {
	case ByMember:
		return c.Role >= tenant.Viewer && c.Role <= tenant.Owner
	case ByProvision, ByVerify:
		return c.Role == 0 && c.Revision == 0
	}
	return false
}

func audience(cell tenant.CellName, key tenant.CellKey) string {
	return string(cell) + "/" + string(key)
}

// Key is a gateway's public key, as the cells have it from their configuration.
// A gateway may have several while its key is being changed.
type Key struct {
	Gateway string
	Public  ed25519.PublicKey
}

// ID is the key's kid.
func (k Key) ID() string {
	sum := sha256.Sum256(k.Public)
	return k.Gateway + "." + hex.EncodeToString(sum[:8])
}
