package cellfsm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"celld/raftfsm"
	"celld/store"
	"celld/store/tenant"
)

// ErrAbsent refuses a command or a read for a tenant whose file this replica has
// to fetch first. Other replicas may have it.
var ErrAbsent = raftfsm.ErrAbsent

// Absence is a tenant whose file is missing here, behind, or bad.
type Absence struct {
	UID    tenant.UID
	Min    uint64 // the file must hold everything up to here, whatever this replica's log has
	Reason string
	Since  time.Time
}

// place is where this replica has a tenant's file when it was fetched: cell.db
// is the same on all replicas and names the folder of the incarnation.
type place struct {
	incarnation string
	folder      string
	applied     uint64 // when it was placed
}

// localSchema is the layout of local.db.
func localSchema() []string {
	return []string{`
CREATE TABLE absence (
  uid TEXT NOT NULL PRIMARY KEY,
  min_index INTEGER NOT NULL,
  reason TEXT NOT NULL,
  since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE place (
  uid TEXT NOT NULL PRIMARY KEY,
  incarnation TEXT NOT NULL,      -- tenant.folder of cell.db
  folder TEXT NOT NULL,           -- below tenants/<uid>
  applied_index INTEGER NOT NULL  -- of the file when it was placed
) STRICT, WITHOUT ROWID;
CREATE TABLE leftover (           -- folders that are being filled, or are to go
  folder TEXT NOT NULL PRIMARY KEY -- below tenants
) STRICT, WITHOUT ROWID;
CREATE TABLE installed (          -- the last snapshot whose absences are above
  one INTEGER PRIMARY KEY CHECK (one = 1),
  id TEXT NOT NULL, snapshot_index INTEGER NOT NULL
) STRICT;`}
}

// openLocal opens local.db, reads it, and removes the folders that a crash has
// left.
func (s *Space) openLocal() error {
	path := filepath.Join(s.dir, "local.db")
	_, noLocal := os.Stat(path)
	if _, noCell := os.Stat(s.cellPath()); noCell == nil && errors.Is(noLocal, os.ErrNotExist) {
		return fmt.Errorf("%s is missing: it says which tenants' files are good here. "+
			"Put it back, or remove this node from the cell and add a new one", path)
	}
	var err error
	if s.local, err = store.OpenLocal(path, localSchema()); err != nil {
		return err
	}
	var left []string
	err = s.local.View(func(c *store.Conn) error {
		err := c.Query("SELECT uid, min_index, reason, since FROM absence", func(r *store.Row) error {
			a := Absence{tenant.UID(r.ColumnText(0)), uint64(r.ColumnInt64(1)), r.ColumnText(2), time.UnixMicro(r.ColumnInt64(3))}
			s.absent[a.UID] = a
			return nil
		})
		if err == nil {
			err = c.Query("SELECT uid, incarnation, folder, applied_index FROM place", func(r *store.Row) error {
				s.places[tenant.UID(r.ColumnText(0))] = place{r.ColumnText(1), r.ColumnText(2), uint64(r.ColumnInt64(3))}
				return nil
			})
		}
		if err == nil {
			err = c.Query("SELECT folder FROM leftover", func(r *store.Row) error { left = append(left, r.ColumnText(0)); return nil })
		}
		return err
	})
	for _, folder := range left {
		if err == nil {
			s.log.Info("remove what an interrupted fetch has left", "folder", folder)
			err = s.sweep(folder)
		}
	}
	return err
}

// sweep removes a leftover folder, and then its row.
func (s *Space) sweep(folder string) error {
	if !filepath.IsLocal(folder) || strings.Count(folder, string(filepath.Separator)) != 1 {
		return fmt.Errorf("local.db names the folder %q", folder)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "tenants", folder)); err != nil {
		return err
	}
	return s.local.Update(func(c *store.Conn) error { return c.Query("DELETE FROM leftover WHERE folder = ?", nil, folder) })
}

// MarkAbsent makes a tenant absent: from now on Acquire answers ErrAbsent, until
// the file has been fetched. It is durable when MarkAbsent returns nil.
func (s *Space) MarkAbsent(uid tenant.UID, reason string) error {
	if _, err := s.Tenant(uid); err != nil {
		return err
	}
	return s.mark(uid, reason)
}

// mark asks cell.db nothing: who calls it may hold a slot.
func (s *Space) mark(uid tenant.UID, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, already := s.absent[uid]; already {
		return nil
	}
	a := Absence{UID: uid, Min: s.reached[uid], Reason: reason, Since: time.Now()}
	if seat := s.known[uid]; seat != nil {
		a.Min = max(a.Min, seat.row.Changed)
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

func (a *Absence) insert(c *store.Conn) error {
	return c.Query(`INSERT INTO absence (uid, min_index, reason, since) VALUES (?, ?, ?, ?)
		ON CONFLICT (uid) DO UPDATE SET min_index = max(min_index, excluded.min_index)`,
		nil, string(a.UID), a.Min, a.Reason, a.Since.UnixMicro())
}

func (s *Space) tellAbsence() {
	select {
	case s.absence <- struct{}{}:
	default:
	}
}

// Damaged implements raftfsm.Space.
func (s *Space) Damaged(target string, cause error) error {
	return s.mark(tenant.UID(target), cause.Error())
}

// Absent implements raftfsm.Space.
func (s *Space) Absent() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.absent)
}

// IsAbsent reports whether a tenant is absent here.
func (s *Space) IsAbsent(uid tenant.UID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, absent := s.absent[uid]
	return absent
}

// Absences lists the absent tenants in order of uid.
func (s *Space) Absences() []Absence {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.absent))
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b Absence) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all
}

// AbsenceTold holds a value when an absence has come since it was last read.
func (s *Space) AbsenceTold() <-chan struct{} { return s.absence }

// DropAbsence forgets the absence of a tenant that the cell does not store. It is
// an error while the tenant may be there: an installation has absences recorded
// before it puts the cell.db in place that has their tenants.
func (s *Space) DropAbsence(uid tenant.UID) error {
	s.swap.RLock()
	defer s.swap.RUnlock()
	switch _, err := s.tenant(uid); {
	case err == nil:
		return fmt.Errorf("the cell stores %s, so its absence stays", uid)
	case !errors.Is(err, ErrNotHere):
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.installing {
		return fmt.Errorf("a snapshot is being installed that may have %s, so its absence stays", uid)
	}
	if err := s.local.Update(func(c *store.Conn) error { return c.Query("DELETE FROM absence WHERE uid = ?", nil, string(uid)) }); err != nil {
		return err
	}
	delete(s.absent, uid)
	return nil
}
