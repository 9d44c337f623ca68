package dirfsm

import (
	"strconv"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// CreateTenant reserves a tenant's id and uid, chooses its cell and makes its
// first owner. An operator may name the cell; otherwise it is the least loaded
// active one of the region and tier, by name among equals.
type CreateTenant struct {
	_      struct{} `cbor:",toarray"`
	ID     tenant.ID
	UID    tenant.UID
	Name   string
	Owner  tenant.UserID
	Region string // "" for any
	Tier   string
	Cell   tenant.CellName // "" for the least loaded
}

// TenantCreated is CreateTenant's result.
type TenantCreated struct {
	_         struct{} `cbor:",toarray"`
	ID        tenant.ID
	UID       tenant.UID
	Cell      tenant.CellName
	Epoch     tenant.Epoch
	Region    string
	Tier      string
	ChangedAt int64
}

// firstEpoch is the epoch of a tenant's first placement.
const firstEpoch = 1

func createTenant(tx *store.Tx, c *raftfsm.Command, b CreateTenant) (TenantCreated, error) {
	none := TenantCreated{}
	if !isOperator(c) {
		if c.Actor != string(b.Owner) || b.Cell != "" {
			return none, errForbidden
		}
		if err := belowTenantLimit(tx, b.Owner); err != nil {
			return none, err
		}
	}
	if n, err := count(tx, "SELECT count(*) FROM user WHERE user_id = ?", string(b.Owner)); err != nil {
		return none, err
	} else if n == 0 {
		return none, fault.New(fault.Impossible, "unknown-user", "there is no user %s", b.Owner)
	}
	if n, err := count(tx, "SELECT count(*) FROM tenant WHERE tenant_fold = ? OR uid = ?", b.ID.Fold(), string(b.UID)); err != nil {
		return none, err
	} else if n > 0 {
		return none, fault.New(fault.Conflict, "tenant-id-taken", "the tenant id is or was in use, perhaps in other case; choose another")
	}
	cell, region, err := chooseCell(tx, b)
	if err != nil {
		return none, err
	}
	if _, err := tx.Exec(`INSERT INTO tenant (uid, tenant_id, tenant_fold, name, region, tier, cell, epoch, last_epoch, state,
			suspended, schema_version, policy, created_at, changed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'provisioning', 0, 1, 1, ?, ?)`,
		string(b.UID), string(b.ID), b.ID.Fold(), b.Name, region, b.Tier, string(cell), firstEpoch, firstEpoch, tx.Now, tx.Now); err != nil {
		return none, err
	}
	if _, err := tx.Exec("UPDATE cell SET tenants = tenants + 1 WHERE name = ?", string(cell)); err != nil {
		return none, err
	}
	if err := insertMember(tx, b.UID, string(b.Owner), tenant.Owner, 1); err != nil {
		return none, err
	}
	made := TenantCreated{ID: b.ID, UID: b.UID, Cell: cell, Epoch: firstEpoch, Region: region, Tier: b.Tier, ChangedAt: tx.Now}
	return made, audit(tx, c, event{"create-tenant", b.ID, b.UID, string(b.Owner), "cell " + string(cell)})
}

func belowTenantLimit(tx *store.Tx, user tenant.UserID) error {
	n, err := count(tx, "SELECT count(*) FROM member WHERE user_id = ?", string(user))
	if err != nil {
		return err
	}
	if n >= MaxTenants {
		return quota("tenant-limit", "a user is in at most %d tenants; leave one", MaxTenants)
	}
	return nil
}

func chooseCell(tx *store.Tx, b CreateTenant) (cell tenant.CellName, region string, err error) {
	var state string
	var tenants, capacity int64
	read := func(r *store.Row) error {
		cell, region, state = tenant.CellName(r.ColumnText(0)), r.ColumnText(1), r.ColumnText(2)
		tenants, capacity = r.ColumnInt64(3), r.ColumnInt64(4)
		return nil
	}
	// A full cell sorts behind every other, so that the first row tells whether
	// there is room at all.
	found, err := tx.One(`SELECT name, region, state, tenants, capacity FROM cell
		WHERE tier = ?1 AND (?2 = '' OR region = ?2) AND ((?3 = '' AND state = 'active') OR name = ?3)
		ORDER BY tenants >= capacity, tenants, name LIMIT 1`, read, b.Tier, b.Region, string(b.Cell))
	switch {
	case err != nil:
		return "", "", err
	case !found:
		return "", "", fault.New(fault.Impossible, "no-cell", "there is no cell of that name, region and tier that takes tenants")
	case state != "active":
		return "", "", fault.New(fault.Conflict, "cell-draining", "the cell %s takes no new tenants", cell)
	case tenants >= capacity:
		return "", "", fault.New(fault.Conflict, "no-capacity", "every cell of that region and tier is full; ask the operator")
	}
	return cell, region, nil
}

// ActivateTenant says that the cell has made the tenant's file. A repetition
// changes nothing further.
type ActivateTenant struct {
	_     struct{} `cbor:",toarray"`
	UID   tenant.UID
	Epoch tenant.Epoch
}

func (h handlers) activateTenant(tx *store.Tx, c *raftfsm.Command, b ActivateTenant) (Nothing, error) {
	if !isGateway(c) {
		return Nothing{}, errForbidden
	}
	t, err := loadTenant(tx, b.UID)
	if err != nil {
		return Nothing{}, err
	}
	if t.epoch != b.Epoch || t.state != tenant.Provisioning && t.state != tenant.Placed {
		return Nothing{}, fault.New(fault.Conflict, "placement-changed", "the tenant's placement is another one by now")
	}
	if t.state == tenant.Placed {
		return Nothing{}, nil
	}
	if _, err := tx.Exec("UPDATE tenant SET state = 'active', changed_at = ? WHERE uid = ?", tx.Now, string(b.UID)); err != nil {
		return Nothing{}, err
	}
	if err := audit(tx, c, event{"activate-tenant", t.id, t.uid, "", "epoch " + strconv.FormatUint(uint64(b.Epoch), 10)}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

// SetSuspended shuts a tenant's members out, or lets them in again.
type SetSuspended struct {
	_         struct{} `cbor:",toarray"`
	UID       tenant.UID
	Suspended bool
}

func (h handlers) setSuspended(tx *store.Tx, c *raftfsm.Command, b SetSuspended) (Nothing, error) {
	if err := needOperator(c); err != nil {
		return Nothing{}, err
	}
	t, err := loadTenant(tx, b.UID)
	if err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec("UPDATE tenant SET suspended = ?, changed_at = ? WHERE uid = ?", b.Suspended, tx.Now, string(b.UID)); err != nil {
		return Nothing{}, err
	}
	action := "resume-tenant"
	if b.Suspended {
		action = "suspend-tenant"
	}
	if err := audit(tx, c, event{action, t.id, t.uid, "", ""}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}
