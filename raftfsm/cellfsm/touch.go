package cellfsm

import (
	"errors"
	"strings"
	"time"

	"celld/store"
	"celld/store/tenant"
)

// touch has change applied to a tenant's file by an entry that is the cell's own,
// and makes it durable, before cell.db commits the entry: so a cell.db that has the
// entry never meets a file without it. The other way round does no harm, because a
// file that is at the entry, or past it, is left as it is. A nil change only looks.
//
// here is false on a replica that lacks the file. The one that it fetches has the
// entry: Staging.Place sees to that.
func (s *Space) touch(tx *store.Tx, row *Tenant, change func(*store.Tx) error) (ctl store.Control, here bool, err error) {
	f, release, err := s.take(s.seatOf(row), s.IsAbsent(row.UID))
	if errors.Is(err, ErrAbsent) {
		return ctl, false, nil
	}
	if err != nil {
		return ctl, false, err
	}
	defer release()
	if change != nil && f.Control().Applied < tx.Index {
		err = f.Update(func(t *store.Tx) error {
			t.Now, t.Index = tx.Now, tx.Index
			return t.Savepoint(func() error {
				t.Control().Applied = tx.Index
				return change(t)
			})
		})
		if err == nil {
			err = errors.Join(f.Sync(), s.at("touched"))
		}
	}
	if store.IsCorrupt(err) {
		return ctl, false, s.mark(row.UID, err.Error())
	}
	return f.Control(), true, err
}

// seatOf is the seat of a row that an open transaction of cell.db has read. It asks
// cell.db nothing.
func (s *Space) seatOf(row *Tenant) *seat {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if have := s.known[row.UID]; have != nil && have.row.Folder == row.Folder {
		return have
	}
	return &seat{row: *row, path: s.path(row.UID, s.folder(row))}
}

// turned notes that an entry of the cell's own changes a tenant's row, and the folder
// of its incarnation from now on, "" for none. What was known of it is asked anew;
// until the entry has committed, that is not kept.
func (s *Space) turned(tx *store.Tx, uid tenant.UID, folder string) {
	s.presences.turn(uid, folder)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[uid] = tx.Index
	delete(s.known, uid)
}

// lack makes a tenant absent whose file has to hold least.
func (s *Space) lack(uid tenant.UID, least uint64, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Absence{UID: uid, Min: least, Reason: reason, Since: time.Now()}
	if before, already := s.absent[uid]; already {
		a.Reason, a.Since = before.Reason, before.Since
	}
	if err := s.local.Update(a.insert); err != nil {
		return err
	}
	s.absent[uid] = a
	s.presences.gone(uid) // after it is marked, see hand
	s.tellAbsence()
	s.log.Error("a tenant is absent here and will be fetched from another replica", "uid", uid, "reason", reason)
	return nil
}

// found ends the absence of a tenant whose retired copy was absent, now that a good
// file has arrived.
func (s *Space) found(uid tenant.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, absent := s.absent[uid]; !absent {
		return nil
	}
	if err := s.local.Update(func(c *store.Conn) error { return c.Query("DELETE FROM absence WHERE uid = ?", nil, string(uid)) }); err != nil {
		return err
	}
	delete(s.absent, uid)
	return nil
}

// settled refuses background work on a tenant that a move has brought, until a
// member has written: until then the move can be undone.
func settled(ctl *store.Control) error {
	if ctl.State == tenant.Active && ctl.Move != "" {
		return errUnsettled
	}
	return nil
}

// handleKey names a file among the open ones: two incarnations of a tenant may be
// open for a while.
func handleKey(uid tenant.UID, incarnation string) string { return string(uid) + "/" + incarnation }

func uidOfKey(key string) tenant.UID {
	uid, _, _ := strings.Cut(key, "/")
	return tenant.UID(uid)
}
