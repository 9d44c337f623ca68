package directory

import (
	"context"
	"time"

	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Authenticate tells who holds a token. Whatever is wrong with it, the answer is
// ErrUnauthenticated; without a lease it is ErrNotFresh.
func (d *Directory) Authenticate(_ context.Context, token string) (Session, error) {
	kind, hash, ok := parseSecret(token)
	if !ok || kind == inviteSecret {
		return Session{}, ErrUnauthenticated
	}
	s, err := d.credential(kind, hash)
	if stale := d.Fresh(); stale != nil {
		return Session{}, stale
	}
	return s, err
}

// AuthenticateStale is Authenticate by what this replica last knew. It is for
// requests that say they accept that.
func (d *Directory) AuthenticateStale(_ context.Context, token string) (Session, error) {
	kind, hash, ok := parseSecret(token)
	if !ok || kind == inviteSecret {
		return Session{}, ErrUnauthenticated
	}
	return d.credential(kind, hash)
}

func (d *Directory) credential(kind secretKind, hash secretHash) (Session, error) {
	kept, found := d.credentials.GetIfPresent(hash)
	if found && d.space.Holds(kept.sequence) {
		d.metrics.hits.Inc()
	} else {
		d.metrics.misses.Inc()
		read, err := d.readCredential(kind, hash)
		if err != nil {
			return Session{}, err
		}
		kept = read
		d.credentials.Set(hash, kept)
	}
	if d.expired(kept.value.ExpiresAt) {
		return Session{}, ErrUnauthenticated
	}
	return kept.value, nil
}

// expired reports whether a moment has come; the zero time never does. What was
// past once stays past when this machine's clock is set back, as far as the
// directory's own time has seen it.
func (d *Directory) expired(at time.Time) bool {
	return !at.IsZero() && (!d.clock.Now().Before(at) || d.space.LastTime() >= at.UnixMicro())
}

// readCredential finds a credential in the file. One that is not there is not
// remembered: whoever makes some up must not drive others out of the cache.
func (d *Directory) readCredential(kind secretKind, hash secretHash) (remembered[Session], error) {
	var s Session
	found := false
	sql := "SELECT user_id, token_id, 0 FROM token WHERE hash = ?"
	s.Kind = APIToken
	if kind == sessionSecret {
		sql, s.Kind = "SELECT user_id, session_id, expires_at FROM session WHERE hash = ?", LoginSession
	}
	sequence, err := d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One(sql, func(r *store.Row) error {
			s.User, s.ID = tenant.UserID(r.ColumnText(0)), r.ColumnText(1)
			if micros := r.ColumnInt64(2); micros != 0 {
				s.ExpiresAt = time.UnixMicro(micros).UTC()
			}
			return nil
		}, hash[:])
		return err
	})
	if err == nil && !found {
		err = ErrUnauthenticated
	}
	return remembered[Session]{sequence, s}, err
}

type accessKey struct {
	user tenant.UserID
	id   tenant.ID
}

// Access tells what a user may do in a tenant. The id comes from a request's
// path and is matched exactly. Malformed, unknown, deleted, another's: all the
// same fault.Unknown(). A suspended tenant and one that is being provisioned are
// returned as such; what to say then is the caller's. Without a lease:
// ErrNotFresh.
func (d *Directory) Access(user tenant.UserID, id string) (Access, error) {
	a, err := d.AccessStale(user, id)
	if stale := d.Fresh(); stale != nil {
		return Access{}, stale
	}
	return a, err
}

// AccessStale is Access by what this replica last knew.
func (d *Directory) AccessStale(user tenant.UserID, id string) (Access, error) {
	if !tenant.ValidID(id) || user == "" {
		return Access{}, fault.Unknown()
	}
	key := accessKey{user, tenant.ID(id)}
	if kept, found := d.access.GetIfPresent(key); found && d.space.Holds(kept.sequence) {
		d.metrics.hits.Inc()
		return kept.value, nil
	}
	d.metrics.misses.Inc()
	var a Access
	found := false
	sequence, err := d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One(`SELECT `+placementColumns+`, member.role, member.revision
			FROM tenant JOIN member USING (uid)
			WHERE tenant_id = ? AND user_id = ? AND tenant.state NOT IN ('deleting', 'deleted')`,
			func(r *store.Row) error {
				a = Access{Placement: placement(r), Role: tenant.Role(r.ColumnInt64(placementWidth)),
					Revision: tenant.Revision(r.ColumnInt64(placementWidth + 1))}
				return nil
			}, id, string(user))
		return err
	})
	if err != nil {
		return Access{}, err
	}
	if !found {
		return Access{}, fault.Unknown()
	}
	d.access.Set(key, remembered[Access]{sequence, a})
	return a, nil
}

const (
	placementColumns = `tenant.tenant_id, tenant.uid, tenant.cell, tenant.epoch, tenant.state, tenant.region, tenant.tier,
		tenant.schema_version, tenant.changed_at, tenant.suspended`
	placementWidth = 10
)

func placement(r *store.Row) tenant.Placement {
	return tenant.Placement{
		Tenant: tenant.ID(r.ColumnText(0)), UID: tenant.UID(r.ColumnText(1)), Cell: tenant.CellName(r.ColumnText(2)),
		Epoch: tenant.Epoch(r.ColumnInt64(3)), State: tenant.PlacementState(r.ColumnText(4)),
		Region: r.ColumnText(5), Tier: r.ColumnText(6), SchemaVersion: r.ColumnInt(7),
		ChangedAt: r.ColumnInt64(8), Suspended: r.ColumnInt64(9) != 0,
	}
}
