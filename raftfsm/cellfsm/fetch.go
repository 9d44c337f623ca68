package cellfsm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"celld/store"
	"celld/store/failpoint"
	"celld/store/tenant"
)

// Staging is a tenant's file on its way here, in a folder of its own that nothing
// names until Place. It is used from one goroutine.
type Staging struct {
	space  *Space
	row    Tenant
	folder string // below tenants
	path   string
	end    string // the folder that End removes, "" for none
}

// Stage begins to fetch the file of an absent tenant, and waits for whoever uses
// the old one. ErrNotHere: the cell no longer stores the tenant.
func (s *Space) Stage(uid tenant.UID) (*Staging, error) {
	row, err := s.Tenant(uid)
	if err != nil {
		return nil, err
	}
	s.swap.Lock()   // whoever did not see yet that it is absent has the file by now
	s.swap.Unlock() //nolint:staticcheck // nothing is to be done while it is held
	s.tenants.Forget(handleKey(uid, row.Folder))
	st := &Staging{space: s, row: row}
	for n := 1; ; n++ {
		st.folder = filepath.Join(string(uid), row.Folder+"."+strconv.Itoa(n))
		if _, err := os.Stat(filepath.Join(s.dir, "tenants", st.folder)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	st.path = filepath.Join(s.dir, "tenants", st.folder, "tenant.db")
	// Named before it is there, so that a crash leaves nothing that nobody knows.
	if err := s.local.Update(func(c *store.Conn) error {
		return c.Query("INSERT OR REPLACE INTO leftover (folder) VALUES (?)", nil, st.folder)
	}); err != nil {
		return nil, err
	}
	st.end = st.folder
	return st, os.MkdirAll(filepath.Dir(st.path), 0o700)
}

// Tenant is cell.db's row of the tenant that is being fetched.
func (st *Staging) Tenant() Tenant { return st.row }

// Path is where the bytes go.
func (st *Staging) Path() string { return st.path }

// Open checks the bytes at Path and opens them as what they should be. The caller
// closes the file, unless Place did.
func (st *Staging) Open() (*store.File, error) {
	f, err := store.Open(st.path, TenantSchema())
	if err != nil {
		return nil, err
	}
	if err = f.Check(); err == nil {
		err = st.row.owns(f.Control())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	failpoint.Here(failpoint.FetchStaged)
	return f, nil
}

// owns reports whether a file with that control row is the tenant's of this row.
func (t *Tenant) owns(ctl store.Control) error {
	if ctl.UID != t.UID || ctl.Tenant != t.ID {
		return fmt.Errorf("the file belongs to %s (%s), not to %s (%s)", ctl.Tenant, ctl.UID, t.ID, t.UID)
	}
	if ctl.Epoch != t.Epoch {
		return fmt.Errorf("the file is of epoch %d, the tenant is at %d", ctl.Epoch, t.Epoch)
	}
	return nil
}

// Place closes the staged file f, which was sent as of the entry asOf, and puts it in
// the tenant's place: from now on Acquire opens it. It is called while nothing is
// applied. The switch is one transaction of local.db, after the file and its folders
// are durable.
//
// What the cell's own entries have done to the tenant's file since asOf is in no
// entry of the tenant's, so f was not caught up with it: then another is fetched.
func (st *Staging) Place(f *store.File, asOf uint64) error {
	s := st.space
	applied := f.Control().Applied
	if err := errors.Join(f.Close(), s.at("closed")); err != nil {
		return err
	}
	if err := errors.Join(store.SyncFolders(st.path), s.at("durable")); err != nil {
		return err
	}
	failpoint.Here(failpoint.FetchDurable)
	s.swap.Lock()
	defer s.swap.Unlock()
	s.tenants.Forget(handleKey(st.row.UID, st.row.Folder)) // nobody has it, since Stage
	row, err := s.tenant(st.row.UID)
	if err != nil {
		return err
	}
	if row.Folder != st.row.Folder {
		return fmt.Errorf("another incarnation of the tenant has arrived meanwhile: %s", row.Folder)
	}
	if row.Changed > asOf {
		return fmt.Errorf("a move has changed the tenant's state at index %d, and the file was sent as of %d", row.Changed, asOf)
	}
	return s.moveTo(row, st, applied)
}

// moveTo is called with swap held and no user of the old file left.
func (s *Space) moveTo(row Tenant, st *Staging, applied uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, old := row.UID, filepath.Join(string(row.UID), s.folder(&row))
	to := place{incarnation: row.Folder, folder: filepath.Base(st.folder), applied: applied}
	err := s.local.Update(func(c *store.Conn) error {
		err := c.Query("INSERT OR REPLACE INTO place (uid, incarnation, folder, applied_index) VALUES (?, ?, ?, ?)",
			nil, string(uid), to.incarnation, to.folder, applied)
		if err == nil {
			err = c.Query("DELETE FROM absence WHERE uid = ?", nil, string(uid))
		}
		if err == nil {
			err = c.Query("DELETE FROM leftover WHERE folder = ?", nil, st.folder)
		}
		if err == nil {
			err = c.Query("INSERT OR REPLACE INTO leftover (folder) VALUES (?)", nil, old)
		}
		return err
	})
	failpoint.Here(failpoint.FetchSwitched)
	if err == nil {
		err = s.at("switched")
	}
	if err != nil {
		// Whether it is on disk is not known: only a new start can tell.
		st.end = ""
		s.fail(fmt.Errorf("switch %s to the fetched file: %w", uid, err))
		return err
	}
	st.end = old
	s.places[uid] = to
	s.reached[uid] = applied
	s.presences.gone(uid)
	delete(s.absent, uid)
	delete(s.known, uid)
	return nil
}

// End removes what is no longer needed: the old file after Place, the staged one
// without it.
func (st *Staging) End() error {
	if st.end == "" {
		return nil
	}
	return st.space.sweep(st.end)
}
