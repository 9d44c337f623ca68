package cellfsm

import (
	"fmt"
	"strconv"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// InitCell is the body of InitCellNumber: it gives a new cell its name and its
// key. The first one in the log wins; a later one changes nothing and is
// answered with what the first one set.
type InitCell struct {
	Name tenant.CellName `cbor:"1,keyasint"`
	Key  tenant.CellKey  `cbor:"2,keyasint"` // random
}

// Cell is the row that a cell has about itself.
type Cell struct {
	Name         tenant.CellName `cbor:"1,keyasint"`
	Key          tenant.CellKey  `cbor:"2,keyasint"`
	FeatureLevel int             `cbor:"3,keyasint"`
}

func initCell(tx *store.Tx, _ *raftfsm.Command, body InitCell) (Cell, error) {
	have, found, err := readCell(tx.Conn)
	if err != nil || found {
		return have, err
	}
	made := Cell{Name: body.Name, Key: body.Key, FeatureLevel: FeatureLevel}
	_, err = tx.Exec("INSERT INTO cell (one, name, key, feature_level, created_at) VALUES (1, ?, ?, ?, ?)",
		string(made.Name), string(made.Key), made.FeatureLevel, tx.Now)
	tx.Control().CellKey = made.Key
	return made, err
}

func readCell(c *store.Conn) (row Cell, found bool, err error) {
	found, err = c.One("SELECT name, key, feature_level FROM cell", func(r *store.Row) error {
		row = Cell{Name: tenant.CellName(r.ColumnText(0)), Key: tenant.CellKey(r.ColumnText(1)), FeatureLevel: r.ColumnInt(2)}
		return nil
	})
	return row, found, err
}

// ProvisionTenant is the body of ProvisionTenantNumber: the first arrival of a
// new tenant. Repeated, it changes nothing.
type ProvisionTenant struct {
	UID    tenant.UID     `cbor:"1,keyasint"`
	Tenant tenant.ID      `cbor:"2,keyasint"`
	Epoch  tenant.Epoch   `cbor:"3,keyasint"`
	Cell   tenant.CellKey `cbor:"4,keyasint"` // the cell that was meant
	Secret []byte         `cbor:"5,keyasint"` // random; what the tenant's cursors are sealed with
}

// Tenant is cell.db's row about a tenant that it stores.
type Tenant struct {
	UID    tenant.UID
	ID     tenant.ID
	Epoch  tenant.Epoch
	Folder string // of the current incarnation, below tenants/<uid>
	Secret []byte
	// Arrived is the log entry with which the incarnation came, Changed the last one of
	// the cell's own that changed its file: the file holds both.
	Arrived, Changed uint64
	State            tenant.State  // as in the file
	Move             tenant.MoveID // that brought, froze or retired it; "" for none
}

// Provisioned is the result of ProvisionTenantNumber.
type Provisioned struct {
	UID    tenant.UID   `cbor:"1,keyasint"`
	Tenant tenant.ID    `cbor:"2,keyasint"`
	Epoch  tenant.Epoch `cbor:"3,keyasint"`
}

// secretSize is the least size of a tenant's secret, in bytes.
const secretSize = 32

// provisionTenant creates the tenant's file before cell.db's row commits: a crash
// in between leaves a file without a row, which the same entry finds and takes
// when it is applied again.
func (s *Space) provisionTenant(tx *store.Tx, _ *raftfsm.Command, body ProvisionTenant) (Provisioned, error) {
	made := Provisioned{UID: body.UID, Tenant: body.Tenant, Epoch: body.Epoch}
	if !body.UID.Valid() || !tenant.ValidID(string(body.Tenant)) || body.Epoch == 0 || len(body.Secret) < secretSize {
		return made, fault.New(fault.Invalid, "invalid-tenant", "uid, tenant id, epoch and secret must be complete")
	}
	if tx.Control().CellKey == "" || tx.Control().CellKey != body.Cell {
		return made, fault.New(fault.Conflict, "wrong-cell", "this is not the cell that was meant: its key differs")
	}
	have, found, err := readTenant(tx.Conn, body.UID)
	if err != nil {
		return made, err
	}
	if found {
		if have.ID != body.Tenant || have.Epoch != body.Epoch || have.State == tenant.Retired {
			return made, fault.New(fault.Conflict, "tenant-exists", "the cell stores this uid under another tenant id or epoch").With("epoch", uint64(have.Epoch))
		}
		return made, nil
	}
	if err := mayProvision(tx.Conn, &body); err != nil {
		return made, err
	}
	folder := strconv.FormatUint(uint64(body.Epoch), 10) + "-0" // "0": not by a move
	_, err = tx.Exec("INSERT INTO tenant (uid, tenant_id, tenant_fold, epoch, folder, secret, arrived_index, state, move_id, changed_index, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?)",
		string(body.UID), string(body.Tenant), body.Tenant.Fold(), uint64(body.Epoch), folder, body.Secret, tx.Index, tenant.Active.String(), tx.Index, tx.Now)
	if store.IsUnique(err) {
		return made, fault.New(fault.Conflict, "tenant-exists", "the cell stores another tenant under this id")
	}
	if err != nil {
		return made, err
	}
	return made, store.Create(s.path(body.UID, folder), TenantSchema(), store.Control{
		UID: body.UID, Tenant: body.Tenant, CellKey: body.Cell, Epoch: body.Epoch, State: tenant.Active,
		// Entries up to this one found no file here and were refused; the file
		// must not take them when the log is applied again after a crash.
		Applied: tx.Index, LastTime: tx.Now,
	}, tx.Now)
}

// mayProvision refuses a tenant that was here before, or arrives by a move: a request
// that comes late must not make it anew, empty and with a writer.
func mayProvision(c *store.Conn, body *ProvisionTenant) error {
	last, err := readDeparted(c, body.UID)
	if err != nil {
		return err
	}
	if last > 0 {
		return fault.New(fault.Conflict, "tenant-exists", "the cell has stored this tenant before; it was moved away").With("epoch", uint64(last))
	}
	coming, err := c.One("SELECT 1 FROM arrival WHERE uid = ? OR tenant_fold = ?", nil, string(body.UID), body.Tenant.Fold())
	if err == nil && coming {
		err = fault.New(fault.Conflict, "tenant-exists", "a move brings a tenant with this uid or id")
	}
	return err
}

func readTenant(c *store.Conn, uid tenant.UID) (row Tenant, found bool, err error) {
	found, err = c.One("SELECT "+tenantColumns+" FROM tenant WHERE uid = ?",
		func(r *store.Row) (err error) { row, err = scanTenant(r); return err }, string(uid))
	return row, found, err
}

const tenantColumns = "uid, tenant_id, epoch, folder, secret, arrived_index, state, move_id, changed_index"

func scanTenant(r *store.Row) (Tenant, error) {
	state, ok := tenant.ParseState(r.ColumnText(6))
	if !ok {
		return Tenant{}, fmt.Errorf("cell.db has the tenant %s in the unknown state %q", r.ColumnText(0), r.ColumnText(6))
	}
	return Tenant{
		UID: tenant.UID(r.ColumnText(0)), ID: tenant.ID(r.ColumnText(1)), Epoch: tenant.Epoch(r.ColumnInt64(2)),
		Folder: r.ColumnText(3), Secret: store.Bytes(r, 4), Arrived: uint64(r.ColumnInt64(5)),
		State: state, Move: tenant.MoveID(r.ColumnText(7)), Changed: uint64(r.ColumnInt64(8)),
	}, nil
}
