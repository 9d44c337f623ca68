package gateway

import (
	"net/http"
	"strconv"

	"celld/gateway/body"
	"celld/gateway/directory"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// operatorTenant is a tenant as operators see it: with its placement.
type operatorTenant struct {
	TenantID  tenant.ID             `json:"tenantId"`
	UID       tenant.UID            `json:"uid"`
	Name      string                `json:"name"`
	Cell      tenant.CellName       `json:"cell"`
	Epoch     tenant.Epoch          `json:"epoch"`
	State     tenant.PlacementState `json:"state"`
	Suspended bool                  `json:"suspended"`
	Region    string                `json:"region"`
	Tier      string                `json:"tier"`
	Owners    []tenant.UserID       `json:"owners,omitempty"`
	Members   int                   `json:"members,omitempty"`
	CreatedAt string                `json:"createdAt"`
	ChangedAt string                `json:"changedAt"`
}

func operatorTenantOf(t directory.Tenant) operatorTenant {
	p := t.Placement
	return operatorTenant{TenantID: p.Tenant, UID: p.UID, Name: t.Name, Cell: p.Cell, Epoch: p.Epoch, State: p.State, Suspended: p.Suspended,
		Region: p.Region, Tier: p.Tier, Owners: t.Owners, Members: t.Members, CreatedAt: formatTime(t.CreatedAt), ChangedAt: formatMicros(p.ChangedAt)}
}

// pageJSON is one page of an operator's list.
type pageJSON[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"nextCursor,omitempty"`
}

// key is the operator's idempotency identity, nil without one.
func (o *operation) key(parts ...any) (*raftfsm.Key, error) {
	given, err := idempotencyKey(o.r.Header)
	if err != nil || given == "" {
		return nil, err
	}
	hash, err := raftfsm.HashOf(parts...)
	if err != nil {
		return nil, err
	}
	return &raftfsm.Key{Operation: o.route.name, Key: given, Hash: hash}, nil
}

// answer writes a success.
func (o *operation) answer(status int, v any, replayed bool) error {
	if replayed {
		o.w.Header().Set("Idempotency-Replayed", "true")
	}
	return writeJSON(o.w, status, v)
}

func (g *Gateway) operatorCreateUser(o *operation) error {
	var in struct {
		UserID   string `json:"userId"`
		Email    string `json:"email"`
		Name     string `json:"name"`
		Password string `json:"password"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if err := firstOf(text("email", in.Email, maxEmail), body.Text("name", in.Name, maxName), body.Text("password", in.Password, maxPassword)); err != nil {
		return err
	}
	if in.UserID != "" && !tenant.ValidID(in.UserID) {
		return fault.New(fault.Invalid, "invalid-field", "userId must be a letter and up to 31 letters, digits or hyphens").With("field", "userId")
	}
	if in.Name == "" {
		in.Name = in.Email
	}
	// The hash is kept, and is no place for a password: under one key the first counts.
	key, err := o.key(in.UserID, in.Email, in.Name, in.Password != "")
	if err != nil {
		return err
	}
	made, replayed, err := g.dir.CreateUser(o.r.Context(), o.by, key, directory.NewUser{ID: tenant.UserID(in.UserID), Email: in.Email, Name: in.Name,
		Password: in.Password, WithToken: true})
	if err != nil {
		return err
	}
	return o.answer(http.StatusCreated, tokenJSON{UserID: made.User, TokenID: made.TokenID, Token: made.Token}, replayed)
}

type tokenJSON struct {
	UserID  tenant.UserID `json:"userId"`
	TokenID string        `json:"tokenId"`
	Token   string        `json:"token,omitempty"`
}

func (g *Gateway) operatorCreateToken(o *operation) error {
	user := tenant.UserID(o.vars["user"])
	if !tenant.ValidID(string(user)) {
		return fault.Unknown()
	}
	var in struct {
		Name string `json:"name"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if err := text("name", in.Name, maxName); err != nil {
		return err
	}
	key, err := o.key(user, in.Name)
	if err != nil {
		return err
	}
	made, replayed, err := g.dir.CreateToken(o.r.Context(), o.by, key, user, in.Name)
	if err != nil {
		return err
	}
	return o.answer(http.StatusCreated, tokenJSON{UserID: user, TokenID: made.ID, Token: made.Secret}, replayed)
}

// operatorListTokens shows a user's tokens without their secrets.
func (g *Gateway) operatorListTokens(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	user := tenant.UserID(o.vars["user"])
	if _, err := g.dir.User(o.r.Context(), user); err != nil {
		return err
	}
	tokens, err := g.dir.Tokens(o.r.Context(), user)
	if err := g.fresh(err); err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{Subject: string(user)}); err != nil {
		return err
	}
	list := pageJSON[listedTokenJSON]{Items: make([]listedTokenJSON, len(tokens))}
	for i, t := range tokens {
		list.Items[i] = listedTokenJSON{TokenID: t.ID, Name: t.Name, CreatedAt: formatTime(t.CreatedAt)}
	}
	return writeJSON(o.w, http.StatusOK, list)
}

type listedTokenJSON struct {
	TokenID   string `json:"tokenId"`
	Name      string `json:"name"`
	CreatedAt string `json:"createdAt"`
}

// operatorRevokeToken ends a token: when it has answered, no gateway takes it.
func (g *Gateway) operatorRevokeToken(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	user, id := o.vars["user"], o.vars["token"]
	if !tenant.ValidID(user) || len(id) > maxName {
		return fault.Unknown()
	}
	key, err := o.key(user, id)
	if err != nil {
		return err
	}
	replayed, err := g.dir.RevokeToken(o.r.Context(), o.by, key, tenant.UserID(user), id)
	if err != nil {
		return err
	}
	return o.w.done(replayed)
}

func (g *Gateway) operatorCreateTenant(o *operation) error {
	var in struct {
		TenantID string `json:"tenantId"`
		Name     string `json:"name"`
		Owner    string `json:"owner"`
		Cell     string `json:"cell"`
		Region   string `json:"region"`
		Tier     string `json:"tier"`
	}
	if err := decode(o.w, o.r, &in); err != nil {
		return err
	}
	if err := firstOf(text("name", in.Name, maxName), text("owner", in.Owner, maxName), body.Text("region", in.Region, maxRegion), checkTier(in.Tier)); err != nil {
		return err
	}
	key, err := o.key(in.TenantID, in.Name, in.Owner, in.Cell, in.Region, in.Tier)
	if err != nil {
		return err
	}
	p, replayed, err := g.foundTenant(o.r.Context(), o.by, key, directory.NewTenant{ID: tenant.ID(in.TenantID), Name: in.Name, Owner: tenant.UserID(in.Owner),
		Cell: tenant.CellName(in.Cell), Region: in.Region, Tier: in.Tier})
	if err != nil {
		return err
	}
	t, err := g.dir.Tenant(o.r.Context(), p.Tenant)
	if err != nil {
		return err
	}
	return o.answer(http.StatusCreated, operatorTenantOf(t), replayed)
}

func (g *Gateway) operatorListTenants(o *operation) error {
	q := body.NewQuery(o.r)
	limit := q.Uint("limit", 1, 1000, 1000)
	after := q.Text("cursor", 32)
	if err := q.Done(); err != nil {
		return err
	}
	all, err := g.dir.Tenants(o.r.Context(), tenant.ID(after), int(limit))
	if err := g.fresh(err); err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{}); err != nil {
		return err
	}
	page := pageJSON[operatorTenant]{Items: mapped(all, operatorTenantOf).Items}
	if len(all) == int(limit) {
		page.Next = string(all[len(all)-1].Placement.Tenant)
	}
	return o.answer(http.StatusOK, page, false)
}

// tenantInPath is the path's tenant, deleted ones too.
func (g *Gateway) tenantInPath(o *operation) (directory.Tenant, error) {
	id, err := tenant.ParseID(o.vars["tenant"])
	if err != nil {
		return directory.Tenant{}, fault.Unknown()
	}
	t, err := g.dir.Tenant(o.r.Context(), id)
	return t, g.fresh(err)
}

func (g *Gateway) operatorShowTenant(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	t, err := g.tenantInPath(o)
	if err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{Tenant: t.Placement.Tenant, UID: t.Placement.UID}); err != nil {
		return err
	}
	return o.answer(http.StatusOK, operatorTenantOf(t), false)
}

func (g *Gateway) operatorSuspend(o *operation) error { return g.setSuspended(o, true) }
func (g *Gateway) operatorResume(o *operation) error  { return g.setSuspended(o, false) }

func (g *Gateway) setSuspended(o *operation, suspended bool) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	t, err := g.tenantInPath(o)
	if err != nil {
		return err
	}
	key, err := o.key(suspended)
	if err != nil {
		return err
	}
	replayed, err := g.dir.SetSuspended(o.r.Context(), o.by, key, t.Placement.UID, suspended)
	if err != nil {
		return err
	}
	if t, err = g.tenantInPath(o); err != nil {
		return err
	}
	return o.answer(http.StatusOK, operatorTenantOf(t), replayed)
}

type auditJSON struct {
	ID      int64      `json:"id"`
	At      string     `json:"at"`
	Actor   string     `json:"actor"`
	Action  string     `json:"action"`
	Tenant  tenant.ID  `json:"tenantId,omitempty"`
	UID     tenant.UID `json:"uid,omitempty"`
	Subject string     `json:"subject,omitempty"`
	Detail  string     `json:"detail,omitempty"`
}

func auditOf(e directory.AuditEntry) auditJSON {
	return auditJSON{ID: e.ID, At: formatTime(e.At), Actor: e.Actor, Action: e.Action, Tenant: e.Tenant, UID: e.UID, Subject: e.Subject, Detail: e.Detail}
}

func (g *Gateway) operatorAudit(o *operation) error {
	q := body.NewQuery(o.r)
	limit := q.Uint("limit", 1, 500, 100)
	before := q.Uint("cursor", 1, 1<<62, 0)
	of, actor := q.Text("tenant", 32), q.Text("actor", 64)
	if err := q.Done(); err != nil {
		return err
	}
	all, next, err := g.dir.Audit(o.r.Context(), directory.AuditFilter{Tenant: tenant.ID(of), Actor: actor, Before: int64(before), Limit: int(limit)})
	if err := g.fresh(err); err != nil {
		return err
	}
	if err := g.record(o, directory.AuditEntry{Tenant: tenant.ID(of), Subject: actor}); err != nil {
		return err
	}
	page := pageJSON[auditJSON]{Items: mapped(all, auditOf).Items}
	if next != 0 { // also of a page that is not full
		page.Next = strconv.FormatInt(next, 10)
	}
	return o.answer(http.StatusOK, page, false)
}
