package cellfsm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"celld/store"
	"celld/store/tenant"
)

// SweepTold holds a value when there is something for Sweep.
func (s *Space) SweepTold() <-chan struct{} { return s.sweeping }

// tellSweep has the next Sweep look at a tenant's folders, at all there are for "".
func (s *Space) tellSweep(uid tenant.UID) {
	s.mu.Lock()
	s.unswept[uid] = struct{}{}
	s.mu.Unlock()
	select {
	case s.sweeping <- struct{}{}:
	default:
	}
}

// Sweep removes the folders of incarnations that the cell no longer names: copies
// that were dropped or replaced, and what aborted moves have staged. It waits for
// whoever still reads them, and is not called by apply. It is called on a node that
// is ready, so that cell.db names everything that is here. What it could not remove
// goes after the next start.
func (s *Space) Sweep() error {
	s.mu.Lock()
	told := s.unswept
	s.unswept = make(map[tenant.UID]struct{})
	s.mu.Unlock()
	if _, all := told[""]; all {
		return s.sweepAll()
	}
	var err error
	for uid := range told {
		err = errors.Join(err, s.sweepTenant(uid))
	}
	return err
}

// sweepAll is Sweep for all folders there are.
func (s *Space) sweepAll() error {
	dirs, err := os.ReadDir(filepath.Join(s.dir, "tenants"))
	for _, d := range dirs {
		if uid := tenant.UID(d.Name()); uid.Valid() {
			err = errors.Join(err, s.sweepTenant(uid))
		}
	}
	return err
}

// sweepTenant looks at the folders first and asks what they are for then: whatever
// comes into being meanwhile is not among them, and cell.db is read between two
// updates, so that a folder made within one has its row by then. The tenant's own folder stays, empty:
// somebody may be about to make another one in it.
func (s *Space) sweepTenant(uid tenant.UID) error {
	dirs, err := os.ReadDir(filepath.Join(s.dir, "tenants", string(uid)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	incarnations, err := s.incarnations(uid)
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(dirs))
	for _, d := range dirs {
		listed[d.Name()] = true
	}
	named, err := s.namedFolders(uid, incarnations, listed)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if named[d.Name()] {
			continue
		}
		incarnation, _, _ := strings.Cut(d.Name(), ".")
		if !incarnations[incarnation] {
			s.tenants.Forget(handleKey(uid, incarnation))
		}
		s.log.Info("remove a folder that belongs to no tenant here any more", "uid", uid, "folder", d.Name())
		if err := os.RemoveAll(filepath.Join(s.dir, "tenants", string(uid), d.Name())); err != nil {
			return err
		}
	}
	return nil
}

// incarnations are those that cell.db names: the tenant's, and one that arrives.
func (s *Space) incarnations(uid tenant.UID) (map[string]bool, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	names := make(map[string]bool, 2)
	err := s.view(func(c *store.Conn) error {
		return c.Query("SELECT folder FROM tenant WHERE uid = ? UNION ALL SELECT folder FROM arrival WHERE uid = ?",
			func(r *store.Row) error { names[r.ColumnText(0)] = true; return nil }, string(uid), string(uid))
	})
	return names, err
}

// namedFolders are the incarnations' own, the one where a fetched file is, and what
// local.db has as a leftover: that is being filled, or goes by itself. A place of an incarnation that has gone is
// forgotten, if it was there when the folders were looked at.
func (s *Space) namedFolders(uid tenant.UID, incarnations map[string]bool, listed map[string]bool) (map[string]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := make(map[string]bool, 4)
	for name := range incarnations {
		named[name] = true
	}
	if p, ok := s.places[uid]; ok {
		named[p.folder] = true
		if !incarnations[p.incarnation] && listed[p.folder] {
			delete(named, p.folder)
			if err := s.local.Update(func(c *store.Conn) error { return c.Query("DELETE FROM place WHERE uid = ?", nil, string(uid)) }); err != nil {
				return nil, err
			}
			delete(s.places, uid)
		}
	}
	return named, s.local.View(func(c *store.Conn) error {
		return c.Query("SELECT folder FROM leftover", func(r *store.Row) error {
			if of, name := filepath.Split(r.ColumnText(0)); filepath.Clean(of) == string(uid) {
				named[name] = true
			}
			return nil
		})
	})
}
