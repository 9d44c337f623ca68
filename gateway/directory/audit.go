package directory

import (
	"context"
	"errors"
	"math"

	"celld/store"
	"celld/store/tenant"
)

// maxAuditLooked is how many entries one page of the audit looks at, where two
// filters are given and it does not fill before.
const maxAuditLooked = 1000

// auditStatement walks the one index that has the entries of the first filter in
// order. Its last column says whether an entry passes the second one too.
func auditStatement(f AuditFilter, limit int) (string, []any) {
	fits, from, where := "1", "audit", "id < ?"
	before := f.Before
	if before == 0 {
		before = math.MaxInt64
	}
	args := []any{before, limit}
	switch {
	case f.Tenant != "" && f.Actor != "":
		fits, from, where = "actor = ?", "audit INDEXED BY audit_tenant", "tenant_id = ? AND id < ?"
		args = append([]any{f.Actor, string(f.Tenant)}, args...)
	case f.Tenant != "":
		from, where = "audit INDEXED BY audit_tenant", "tenant_id = ? AND id < ?"
		args = append([]any{string(f.Tenant)}, args...)
	case f.Actor != "":
		from, where = "audit INDEXED BY audit_actor", "actor = ? AND id < ?"
		args = append([]any{f.Actor}, args...)
	}
	return "SELECT id, at, actor, action, tenant_id, uid, subject, detail, " + fits + " FROM " + from + " WHERE " + where + " ORDER BY id DESC LIMIT ?", args
}

var errPageEnds = errors.New("the page ends here")

// Audit reads the audit, newest first. It goes on before the entry next; 0 is its
// end. A page may be short, and even empty, while the audit goes on.
func (d *Directory) Audit(ctx context.Context, f AuditFilter) (out []AuditEntry, next int64, err error) {
	if f.Limit < 1 || f.Limit > 500 {
		return nil, 0, invalid("limit", "must be 1 to 500")
	}
	err = d.space.Scan(ctx, func(c *store.Conn) error {
		out, next, err = auditPage(c, f)
		return err
	})
	return out, next, err
}

func auditPage(c *store.Conn, f AuditFilter) (out []AuditEntry, next int64, err error) {
	most := f.Limit
	if f.Tenant != "" && f.Actor != "" {
		most = maxAuditLooked
	}
	sql, args := auditStatement(f, most+1) // one more tells whether there is more
	looked, last := 0, int64(0)
	err = c.Query(sql, func(r *store.Row) error {
		fits := r.ColumnBool(8)
		if looked == most || fits && len(out) == f.Limit {
			next = last
			return errPageEnds
		}
		if fits {
			out = append(out, AuditEntry{ID: r.ColumnInt64(0), At: micros(r, 1), Actor: r.ColumnText(2), Action: r.ColumnText(3),
				Tenant: tenant.ID(r.ColumnText(4)), UID: tenant.UID(r.ColumnText(5)), Subject: r.ColumnText(6), Detail: r.ColumnText(7)})
		}
		looked, last = looked+1, r.ColumnInt64(0)
		return nil
	}, args...)
	if errors.Is(err, errPageEnds) {
		err = nil
	}
	return out, next, err
}
