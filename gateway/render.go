package gateway

import (
	"time"

	"celld/gateway/directory"
	"celld/store/tenant"
)

// The public API's JSON shapes for what the directory holds. Where a tenant lies
// is none of its users' business, so no shape here has a cell.

type tenantJSON struct {
	TenantID  tenant.ID             `json:"tenantId"`
	Name      string                `json:"name"`
	Role      string                `json:"role,omitempty"`
	Region    string                `json:"region,omitempty"`
	Tier      string                `json:"tier"`
	State     tenant.PlacementState `json:"state"`
	Suspended bool                  `json:"suspended,omitempty"`
	CreatedAt string                `json:"createdAt,omitempty"`
	Since     string                `json:"since,omitempty"`
}

type memberJSON struct {
	UserID tenant.UserID `json:"userId"`
	Email  string        `json:"email"`
	Name   string        `json:"name"`
	Role   string        `json:"role"`
	Since  string        `json:"since"`
}

type inviteJSON struct {
	InviteID  string `json:"inviteId"`
	Email     string `json:"email"`
	Role      string `json:"role"`
	InvitedBy string `json:"invitedBy,omitempty"`
	CreatedAt string `json:"createdAt"`
	ExpiresAt string `json:"expiresAt"`
	Token     string `json:"token,omitempty"`
}

type meJSON struct {
	UserID      tenant.UserID `json:"userId"`
	Email       string        `json:"email"`
	Name        string        `json:"name"`
	CreatedAt   string        `json:"createdAt"`
	Memberships []tenantJSON  `json:"memberships"`
}

type sessionJSON struct {
	UserID    tenant.UserID `json:"userId"`
	Token     string        `json:"token"`
	ExpiresAt string        `json:"expiresAt"`
}

type listJSON[T any] struct {
	Items []T `json:"items"`
}

// formatTime is RFC 3339 in UTC with microseconds, "" for no time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

func membershipOf(m directory.Membership) tenantJSON {
	p := m.Placement
	return tenantJSON{TenantID: p.Tenant, Name: m.Name, Role: m.Role.String(), Region: p.Region, Tier: p.Tier, State: p.State,
		Suspended: p.Suspended, Since: formatTime(m.Since)}
}

func memberOf(m directory.Member) memberJSON {
	return memberJSON{UserID: m.User, Email: m.Email, Name: m.Name, Role: m.Role.String(), Since: formatTime(m.Since)}
}

func inviteOf(i directory.Invite) inviteJSON {
	return inviteJSON{InviteID: i.ID, Email: i.Email, Role: i.Role.String(), InvitedBy: i.InvitedBy,
		CreatedAt: formatTime(i.CreatedAt), ExpiresAt: formatTime(i.ExpiresAt)}
}

// mapped turns a list into its JSON shapes; never null.
func mapped[A, B any](in []A, f func(A) B) listJSON[B] {
	out := make([]B, 0, len(in))
	for _, a := range in {
		out = append(out, f(a))
	}
	return listJSON[B]{Items: out}
}

// formatMicros is formatTime for unix microseconds.
func formatMicros(at int64) string { return formatTime(time.UnixMicro(at)) }
