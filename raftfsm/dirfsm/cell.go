package dirfsm

import (
	"strings"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// PutCell registers a cell or changes what is known of it.
type PutCell struct {
	_        struct{} `cbor:",toarray"`
	Name     tenant.CellName
	Key      tenant.CellKey
	Region   string
	Tier     string
	State    string
	Capacity int64
	Nodes    []CellNode // by name
}

// CellNode is where one node of a cell listens.
type CellNode struct {
	_       struct{} `cbor:",toarray"`
	Name    string
	Address string
}

func (h handlers) putCell(tx *store.Tx, c *raftfsm.Command, b PutCell) (Nothing, error) {
	if err := needOperator(c); err != nil {
		return Nothing{}, err
	}
	if err := cellAllows(tx, b); err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec(`INSERT INTO cell (name, name_fold, cell_key, region, tier, state, capacity, tenants, changed_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8)
		ON CONFLICT (name) DO UPDATE SET region = ?4, tier = ?5, state = ?6, capacity = ?7, changed_at = ?8`,
		string(b.Name), strings.ToLower(string(b.Name)), string(b.Key), b.Region, b.Tier, b.State, b.Capacity, tx.Now); err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec("DELETE FROM cell_node WHERE cell = ?", string(b.Name)); err != nil {
		return Nothing{}, err
	}
	for _, n := range b.Nodes {
		if _, err := tx.Exec("INSERT INTO cell_node (cell, node, address) VALUES (?, ?, ?)", string(b.Name), n.Name, n.Address); err != nil {
			return Nothing{}, taken(err)
		}
	}
	if err := audit(tx, c, event{action: "put-cell", subject: string(b.Name), detail: b.State}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

// cellAllows keeps a cell what it is to the tenants that were placed in it.
func cellAllows(tx *store.Tx, b PutCell) error {
	var err error
	same := false
	look := func(r *store.Row) error {
		name, key, region, tier, tenants := r.ColumnText(0), r.ColumnText(1), r.ColumnText(2), r.ColumnText(3), r.ColumnInt64(4)
		switch {
		case name == string(b.Name) && key != string(b.Key):
			err = fault.New(fault.Conflict, "cell-key-changed", "the cell %s has another cell key: that is another cell under the same name", name)
		case name != string(b.Name) && key == string(b.Key):
			err = fault.New(fault.Conflict, "cell-key-taken", "the cell %s has this cell key", name)
		case name != string(b.Name):
			err = fault.New(fault.Conflict, "cell-name-taken", "there is a cell %s; names are unique ignoring case", name)
		case tenants > 0 && (region != b.Region || tier != b.Tier):
			err = fault.New(fault.Conflict, "cell-has-tenants", "the region and tier of a cell with tenants are fixed")
		default:
			same = true
		}
		return nil
	}
	if failed := tx.Query("SELECT name, cell_key, region, tier, tenants FROM cell WHERE name_fold = ? OR cell_key = ? ORDER BY name",
		look, strings.ToLower(string(b.Name)), string(b.Key)); failed != nil {
		return failed
	}
	if err == nil && !same {
		n, failed := count(tx, "SELECT count(*) FROM cell")
		if failed != nil {
			return failed
		}
		if n >= MaxCells {
			err = quota("cell-limit", "there are at most %d cells", MaxCells)
		}
	}
	return err
}

// MaxCells is how many cells a directory knows.
const MaxCells = 1000
