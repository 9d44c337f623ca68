package directory

import (
	"context"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

const cellColumns = "name, cell_key, region, tier, state, capacity, tenants"

func cell(r *store.Row) Cell {
	return Cell{Name: tenant.CellName(r.ColumnText(0)), Key: tenant.CellKey(r.ColumnText(1)),
		Region: r.ColumnText(2), Tier: r.ColumnText(3), State: CellState(r.ColumnText(4)),
		Capacity: r.ColumnInt(5), Tenants: r.ColumnInt(6), Nodes: map[string]string{}}
}

func addNodes(c *store.Conn, to *Cell) error {
	return c.Query("SELECT node, address FROM cell_node WHERE cell = ? ORDER BY node", func(r *store.Row) error {
		to.Nodes[r.ColumnText(0)] = r.ColumnText(1)
		return nil
	}, string(to.Name))
}

// Cell returns a registered cell, or fault.Unknown(). The answer is remembered
// and shared: don't change its Nodes. Tenants is left 0; Cells counts them.
func (d *Directory) Cell(name tenant.CellName) (Cell, error) {
	if kept, found := d.cells.GetIfPresent(name); found && d.space.Holds(kept.sequence) {
		d.metrics.hits.Inc()
		return kept.value, nil
	}
	d.metrics.misses.Inc()
	var out Cell
	found := false
	sequence, err := d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One("SELECT "+cellColumns+" FROM cell WHERE name = ?", func(r *store.Row) error {
			out = cell(r)
			return nil
		}, string(name))
		if err != nil || !found {
			return err
		}
		return addNodes(c, &out)
	})
	if err != nil {
		return Cell{}, err
	}
	if !found {
		return Cell{}, fault.Unknown()
	}
	out.Tenants = 0
	d.cells.Set(name, remembered[Cell]{sequence, out})
	return out, nil
}

// Cells lists every cell by name.
func (d *Directory) Cells(ctx context.Context) ([]Cell, error) {
	var out []Cell
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		err := c.Query("SELECT "+cellColumns+" FROM cell ORDER BY name", func(r *store.Row) error {
			out = append(out, cell(r))
			return nil
		})
		for i := range out {
			if err == nil {
				err = addNodes(c, &out[i])
			}
		}
		return err
	})
	return out, err
}

// PutCell registers a cell or changes what is known of it; by operators. The key
// of a registered cell can't be changed: 409 cell-key-changed.
func (d *Directory) PutCell(ctx context.Context, by Actor, key *raftfsm.Key, in Cell) (bool, error) {
	body, err := checkCell(in)
	if err != nil {
		return false, err
	}
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, "", dirfsm.NumPutCell, body)
	return replayed, err
}

// Record leaves an audit row for an act that changed nothing here, such as an
// operator's look at a tenant. ID, At and Actor of the entry are set by the
// directory.
func (d *Directory) Record(ctx context.Context, by Actor, e AuditEntry) error {
	for _, f := range []struct{ name, text string }{{"action", e.Action}, {"subject", e.Subject}, {"detail", e.Detail}} {
		if err := checkText(f.name, f.text, maxAuditText); err != nil {
			return err
		}
	}
	_, _, err := propose[dirfsm.Nothing](ctx, d, by, nil, "", dirfsm.NumRecord,
		dirfsm.Record{Action: e.Action, Tenant: e.Tenant, UID: e.UID, Subject: e.Subject, Detail: e.Detail})
	return err
}
