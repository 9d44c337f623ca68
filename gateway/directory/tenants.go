package directory

import (
	"context"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// CreateTenant reserves id, uid, cell and first epoch of a tenant and makes its
// owner a member. The placement that it returns is in state provisioning, unless
// a replay finds it further: the caller has the cell make the tenant's file and then calls ActivateTenant.
// Whoever leads the directory resumes what is left in Provisioning.
func (d *Directory) CreateTenant(ctx context.Context, by Actor, key *raftfsm.Key, in NewTenant) (tenant.Placement, bool, error) {
	none := tenant.Placement{}
	body := dirfsm.CreateTenant{ID: in.ID, Name: in.Name, Owner: in.Owner, Region: in.Region, Tier: in.Tier, Cell: in.Cell}
	if err := checkName("name", in.Name); err != nil {
		return none, false, err
	}
	if err := checkUser("owner", in.Owner); err != nil {
		return none, false, err
	}
	if in.Region != "" {
		if err := checkLabel("region", in.Region); err != nil {
			return none, false, err
		}
	}
	if body.Tier == "" {
		body.Tier = defaultTier
	}
	if err := checkTier(body.Tier); err != nil {
		return none, false, err
	}
	switch {
	case !by.operator() && (in.ID != "" || in.Cell != ""):
		return none, false, fault.New(fault.Forbidden, "forbidden", "only operators choose a tenant's id or cell")
	case in.ID != "":
		if _, err := tenant.ParseID(string(in.ID)); err != nil {
			return none, false, err
		}
	default:
		id, err := newID(d.cfg.Random, "t-")
		if err != nil {
			return none, false, err
		}
		body.ID = tenant.ID(id)
	}
	if in.Cell != "" && !tenant.ValidID(string(in.Cell)) {
		return none, false, invalid("cell", "must be a letter and up to 31 letters, digits or hyphens")
	}
	var err error
	if body.UID, err = tenant.NewUID(d.cfg.Random); err != nil {
		return none, false, err
	}
	made, replayed, err := propose[dirfsm.TenantCreated](ctx, d, by, key, "", dirfsm.NumCreateTenant, body)
	if err != nil {
		return none, false, err
	}
	if replayed {
		// The tenant may have gone on since: say where it is now.
		now, err := d.TenantByUID(ctx, made.UID)
		return now.Placement, true, err
	}
	return tenant.Placement{Tenant: made.ID, UID: made.UID, Cell: made.Cell, Epoch: made.Epoch, State: tenant.Provisioning,
		Region: made.Region, Tier: made.Tier, SchemaVersion: 1, ChangedAt: made.ChangedAt}, false, nil
}

// ActivateTenant says that the cell has made the tenant's file. It may be
// repeated. 409 placement-changed where the placement is another one by now.
func (d *Directory) ActivateTenant(ctx context.Context, uid tenant.UID, epoch tenant.Epoch) error {
	_, _, err := propose[dirfsm.Nothing](ctx, d, d.self(), nil, uid, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid, Epoch: epoch})
	return err
}

// SetSuspended shuts a tenant's members out or lets them in again; by operators.
func (d *Directory) SetSuspended(ctx context.Context, by Actor, key *raftfsm.Key, uid tenant.UID, suspended bool) (bool, error) {
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, uid, dirfsm.NumSetSuspended, dirfsm.SetSuspended{UID: uid, Suspended: suspended})
	return replayed, err
}

// Tenant returns a tenant by its public id with its owners, deleted ones too, or
// fault.Unknown(). It is for operators: it checks no membership.
func (d *Directory) Tenant(ctx context.Context, id tenant.ID) (Tenant, error) {
	return d.tenantWhere(ctx, "tenant.tenant_id = ?", string(id))
}

// TenantByUID is Tenant by uid.
func (d *Directory) TenantByUID(ctx context.Context, uid tenant.UID) (Tenant, error) {
	return d.tenantWhere(ctx, "tenant.uid = ?", string(uid))
}

const (
	tenantColumns = placementColumns + ", tenant.name, tenant.created_at"
	tenantWidth   = placementWidth + 2
)

func tenantRow(r *store.Row) Tenant {
	return Tenant{Placement: placement(r), Name: r.ColumnText(placementWidth), CreatedAt: micros(r, placementWidth+1)}
}

func (d *Directory) tenantWhere(ctx context.Context, where, arg string) (Tenant, error) {
	var t Tenant
	found := false
	err := d.space.Scan(ctx, func(c *store.Conn) (err error) {
		found, err = c.One("SELECT "+tenantColumns+" FROM tenant WHERE "+where, func(r *store.Row) error {
			t = tenantRow(r)
			return nil
		}, arg)
		if err != nil || !found {
			return err
		}
		return c.Query("SELECT user_id, role FROM member WHERE uid = ? ORDER BY user_id", func(r *store.Row) error {
			t.Members++
			if tenant.Role(r.ColumnInt64(1)) == tenant.Owner {
				t.Owners = append(t.Owners, tenant.UserID(r.ColumnText(0)))
			}
			return nil
		}, string(t.Placement.UID))
	})
	if err == nil && !found {
		err = fault.Unknown()
	}
	return t, err
}

// Tenants lists tenants by public id, deleted ones too, from after on. It is for
// operators.
func (d *Directory) Tenants(ctx context.Context, after tenant.ID, limit int) ([]Tenant, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var out []Tenant
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query("SELECT "+tenantColumns+" FROM tenant WHERE tenant_id > ? ORDER BY tenant_id LIMIT ?", func(r *store.Row) error {
			out = append(out, tenantRow(r))
			return nil
		}, string(after), limit)
	})
	return out, err
}

func checkLimit(limit int) error {
	if limit < 1 || limit > 1000 {
		return invalid("limit", "must be 1 to 1000")
	}
	return nil
}

// Provisioning lists tenants whose cell has not yet said that it made their
// file, oldest first, at most 1,000.
func (d *Directory) Provisioning(ctx context.Context) ([]tenant.Placement, error) {
	var out []tenant.Placement
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query("SELECT "+placementColumns+" FROM tenant WHERE state = 'provisioning' ORDER BY created_at, uid LIMIT 1000",
			func(r *store.Row) error {
				out = append(out, placement(r))
				return nil
			})
	})
	return out, err
}

// Memberships lists a user's tenants by public id, from after on; limit is 1 to
// 1,000.
func (d *Directory) Memberships(ctx context.Context, user tenant.UserID, after tenant.ID, limit int) ([]Membership, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var out []Membership
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query(`SELECT `+membershipColumns+` FROM member JOIN tenant USING (uid)
			WHERE member.user_id = ? AND tenant.tenant_id > ? AND tenant.state NOT IN ('deleting', 'deleted')
			ORDER BY tenant.tenant_id LIMIT ?`, func(r *store.Row) error {
			out = append(out, membership(r))
			return nil
		}, string(user), string(after), limit)
	})
	return out, err
}

const membershipColumns = tenantColumns + ", member.role, member.revision, member.added_at"

func membership(r *store.Row) Membership {
	t := tenantRow(r)
	return Membership{Placement: t.Placement, Name: t.Name, Role: tenant.Role(r.ColumnInt64(tenantWidth)),
		Revision: tenant.Revision(r.ColumnInt64(tenantWidth + 1)), Since: micros(r, tenantWidth+2)}
}
