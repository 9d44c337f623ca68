package cellfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
)

// Version counts the changes of one record, from 1.
type Version int64

// Event names what a command did, in outbox and audit rows. Names are stable.
type Event string

const (
	CustomerCreated Event = "customer.created"
	CustomerUpdated Event = "customer.updated"
	InvoiceCreated  Event = "invoice.created"
	InvoiceUpdated  Event = "invoice.updated"
)

// ErrReferenceTaken refuses a reference that another record of the tenant has.
var ErrReferenceTaken = fault.New(fault.Conflict, "reference-taken", "another record of this tenant has this reference")

// ErrVersionMismatch refuses a change that expects another version than the
// record has; its field currentVersion tells which.
var ErrVersionMismatch = fault.New(fault.Precondition, "version-mismatch", "the record has another version than expected; read it again")

func expect(want, have Version) error {
	if want != have {
		return ErrVersionMismatch.With("currentVersion", int64(have))
	}
	return nil
}

// next is the next id in a table of the tenant's. Rows are never deleted, so the
// highest id is the last that was given out; a refusal gives none out.
func next(tx *store.Tx, table string) (int64, error) {
	return tx.Next(table, func(c *store.Conn) (id int64, err error) {
		_, err = c.One("SELECT coalesce(max("+table+"_id), 0) FROM "+table+" WHERE tenant_id = ?",
			func(r *store.Row) error { id = r.ColumnInt64(0); return nil }, string(tx.Control().Tenant))
		return id, err
	})
}

// record writes what the command did to the audit, and so to the outbox. Each
// command that has an effect takes one sequence number, and records one event
// under it.
func record(tx *store.Tx, c *raftfsm.Command, event Event, object int64, version Version) error {
	ctl := tx.Control()
	sequence := ctl.Sequence + 1           // the command's own: the apply machinery counts after the handler
	if tx.Changing != nil && version > 1 { // nobody remembers what was not there
		tx.Changing(uint8(kindOf(event)), object, sequence)
	}
	_, err := tx.Exec("INSERT INTO audit (tenant_id, sequence, at, actor, event, object_id, version, epoch) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		string(ctl.Tenant), sequence, tx.Now, c.Actor, string(event), object, int64(version), uint64(ctl.Epoch))
	return err
}

func textOrNull(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

func intOrNull(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

func optionalText(r *store.Row, col int) *string {
	if r.ColumnIsNull(col) {
		return nil
	}
	s := r.ColumnText(col)
	return &s
}

func optionalInt(r *store.Row, col int) *int64 {
	if r.ColumnIsNull(col) {
		return nil
	}
	n := r.ColumnInt64(col)
	return &n
}
