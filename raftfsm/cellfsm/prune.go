package cellfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Prune is the body of PruneNumber: it deletes what a tenant need not remember any
// longer, the oldest first, at most Limit rows of each kind. Times are unix
// microseconds and go by the times that the rows were given.
type Prune struct {
	Keys  int64 `cbor:"1,keyasint"` // idempotency keys recorded before it go
	Audit int64 `cbor:"2,keyasint"` // audit and outbox rows before it go
	Limit int   `cbor:"3,keyasint"`
}

// Pruned is the result of PruneNumber.
type Pruned struct {
	Keys  int `cbor:"1,keyasint"` // rows deleted
	Audit int `cbor:"2,keyasint"`
}

// maxPrune bounds Prune.Limit.
const maxPrune = 1000

// ErrNothingToPrune refuses a Prune that would change nothing.
var ErrNothingToPrune = fault.New(fault.Conflict, "nothing-to-prune", "the tenant has no rows from before those times")

// prune deletes from the front of tables that are in the order of the tenant's
// sequence, in which times do not go back. No step goes through more than Limit
// rows.
func prune(tx *store.Tx, _ *raftfsm.Command, body Prune) (done Pruned, err error) {
	if body.Limit < 1 || body.Limit > maxPrune {
		return done, fault.New(fault.Invalid, "invalid-prune", "a limit is 1..%d rows", maxPrune)
	}
	if done.Keys, err = pruneFront(tx, keysByTime(), body.Keys, body.Limit); err != nil {
		return done, err
	}
	if done.Audit, err = pruneFront(tx, auditByTime(), body.Audit, body.Limit); err != nil {
		return done, err
	}
	if done == (Pruned{}) {
		return done, ErrNothingToPrune
	}
	return done, nil
}

// byTime is a table in the order of (tenant_id, sequence), and its column of times.
type byTime struct{ table, time string }

func keysByTime() byTime  { return byTime{"idempotency", "created_at"} }
func auditByTime() byTime { return byTime{"audit", "at"} }

// front is the last sequence number of the first limit rows that are from before a
// time; 0 for none.
func (b byTime) front(c *store.Conn, id tenant.ID, before int64, limit int) (last uint64, err error) {
	err = c.Query("SELECT sequence, "+b.time+" FROM "+b.table+" WHERE tenant_id = ? ORDER BY sequence LIMIT ?", func(r *store.Row) error {
		if sequence := uint64(r.ColumnInt64(0)); r.ColumnInt64(1) < before {
			last = sequence
		}
		return nil
	}, string(id), limit)
	return last, err
}

func pruneFront(tx *store.Tx, b byTime, before int64, limit int) (int, error) {
	id := tx.Control().Tenant
	last, err := b.front(tx.Conn, id, before, limit)
	if err != nil || last == 0 {
		return 0, err
	}
	return tx.Exec("DELETE FROM "+b.table+" WHERE tenant_id = ? AND sequence <= ?", string(id), last)
}

// Prunable reports whether body would find anything to prune in a tenant's file on
// this replica. It reads two rows.
func (s *Space) Prunable(uid tenant.UID, body Prune) (prunable bool, err error) {
	f, release, err := s.Acquire(string(uid))
	if err != nil {
		return false, err
	}
	defer release()
	if ctl := f.Control(); ctl.State != tenant.Active || settled(&ctl) != nil {
		return false, nil
	}
	err = f.View(func(c *store.Conn) error {
		keys, err := keysByTime().front(c, f.Control().Tenant, body.Keys, 1)
		if err != nil {
			return err
		}
		old, err := auditByTime().front(c, f.Control().Tenant, body.Audit, 1)
		prunable = keys > 0 || old > 0
		return err
	})
	return prunable, err
}
