package cellfsm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Space is the files of one cell on one node: cell.db and the tenants'. It is
// what package raftfsm replicates into, and the guard of the cell's commands.
type Space struct {
	dir     string
	cell    *store.Handles // holds cell.db alone
	tenants *store.Handles
	failed  chan error // holds the first error that ends the node
	key     atomic.Pointer[tenant.CellKey]
	onMark  raftfsm.Look // nil for nobody

	// presences are what reads go by without opening a file. Whoever replaces a
	// tenant's file, or has it read no more, calls presences.gone.
	presences presences

	// swap is held to read while a file is being opened, and to write while
	// Install replaces files: nothing opens a file that is about to go. Install
	// waits for the users of a file, so nobody asks for swap while using one.
	swap  sync.RWMutex
	mu    sync.RWMutex
	known map[tenant.UID]Tenant // rows of cell.db that were read already
}

// ErrNotHere refuses a command or a read for a tenant that the cell does not
// store.
var ErrNotHere = fault.New(fault.Moved, "placement-changed", "this cell does not store the tenant")

// ErrFenced refuses a write or a read of a tenant that a move holds.
var ErrFenced = fault.New(fault.Fenced, "tenant-frozen", "the tenant is being moved; retry")

// commitAge is how long a tenant's transaction stays open. What a crash takes of
// it is applied again from the log.
const commitAge = 2 * time.Second

// OpenSpace opens the files below dir, and makes cell.db if there is none yet.
// At most maxOpen tenants' files stay open when idle. slots bounds the calls
// into SQLite and may be nil.
func OpenSpace(dir string, maxOpen int, slots *store.Slots, log *slog.Logger) (*Space, error) {
	s := &Space{dir: dir, failed: make(chan error, 1), known: make(map[tenant.UID]Tenant)}
	if err := os.MkdirAll(filepath.Join(dir, "tenants"), 0o700); err != nil { // made durable with cell.db
		return nil, err
	}
	if err := store.Create(s.cellPath(), CellSchema(), store.Control{}, 0); err != nil {
		return nil, err
	}
	s.cell = store.NewHandles(CellSchema(), 1, slots, log)
	s.tenants = store.NewHandles(TenantSchema(), maxOpen, slots, log)
	s.tenants.WriteBehind(commitAge, s.fail)
	if _, err := s.Key(); err != nil { // a bad cell.db is noticed now
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OnMark has look called for each mark that is applied. It is called before the
// first apply.
func (s *Space) OnMark(look raftfsm.Look) { s.onMark = look }

func (s *Space) look(c *raftfsm.Command, m raftfsm.Mark, index uint64, f *store.File, why error) {
	if s.onMark != nil {
		s.onMark(c, m, index, f, why)
	}
}

func (s *Space) cellPath() string { return filepath.Join(s.dir, "cell.db") }

func (s *Space) path(uid tenant.UID, folder string) string {
	return filepath.Join(s.dir, "tenants", string(uid), folder, "tenant.db")
}

// Acquire implements raftfsm.Space: the file of a tenant by its uid, cell.db for
// "". A tenant that cell.db does not have is ErrNotHere.
func (s *Space) Acquire(target string) (*store.File, func(), error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.acquire(target)
}

func (s *Space) acquire(target string) (*store.File, func(), error) {
	if target == "" {
		return s.cell.Acquire("", s.cellPath())
	}
	row, err := s.tenant(tenant.UID(target))
	if err != nil {
		return nil, nil, err
	}
	f, release, err := s.tenants.Acquire(target, s.path(row.UID, row.Folder))
	if err != nil {
		return nil, nil, fmt.Errorf("tenant %s: %w", target, err)
	}
	if ctl := f.Control(); ctl.UID != row.UID || ctl.Tenant != row.ID {
		release()
		return nil, nil, fmt.Errorf("%s belongs to %s (%s), not to %s (%s)", f.Path(), ctl.Tenant, ctl.UID, row.ID, row.UID)
	}
	s.presences.opened(row.UID, f)
	return f, release, nil
}

// Tenant is cell.db's row about a tenant, or ErrNotHere.
func (s *Space) Tenant(uid tenant.UID) (Tenant, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.tenant(uid)
}

// tenant asks anew each time for what is unknown, because it may arrive at any
// moment; what is known stays, because rows do not change.
func (s *Space) tenant(uid tenant.UID) (Tenant, error) {
	s.mu.RLock()
	row, ok := s.known[uid]
	s.mu.RUnlock()
	if ok {
		return row, nil
	}
	found := false
	err := s.view(func(c *store.Conn) (err error) {
		row, found, err = readTenant(c, uid)
		return err
	})
	if err != nil {
		return Tenant{}, err
	}
	if !found {
		return Tenant{}, ErrNotHere
	}
	s.mu.Lock()
	s.known[uid] = row
	s.mu.Unlock()
	return row, nil
}

// view reads cell.db. The caller holds swap.
func (s *Space) view(fn func(*store.Conn) error) error {
	f, release, err := s.acquire("")
	if err != nil {
		return err
	}
	defer release()
	return f.View(fn)
}

// Tenants lists cell.db's rows in order of uid.
func (s *Space) Tenants() ([]Tenant, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	var rows []Tenant
	err := s.view(func(c *store.Conn) error {
		return c.Query("SELECT "+tenantColumns+" FROM tenant ORDER BY uid",
			func(r *store.Row) error { rows = append(rows, scanTenant(r)); return nil })
	})
	return rows, err
}

// UIDs lists the cell's tenants, and cell.db as "".
func (s *Space) UIDs() ([]string, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	uids := []string{""}
	err := s.view(func(c *store.Conn) error {
		return c.Query("SELECT uid FROM tenant ORDER BY uid", func(r *store.Row) error { uids = append(uids, r.ColumnText(0)); return nil })
	})
	return uids, err
}

// Count is how many tenants the cell stores.
func (s *Space) Count() (n int, err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	err = s.view(func(c *store.Conn) error {
		_, err := c.One("SELECT count(*) FROM tenant", func(r *store.Row) error { n = r.ColumnInt(0); return nil })
		return err
	})
	return n, err
}

// Cell is what the cell knows about itself; found is false before InitCell.
func (s *Space) Cell() (row Cell, found bool, err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	err = s.view(func(c *store.Conn) error {
		row, found, err = readCell(c)
		return err
	})
	return row, found, err
}

// Files implements raftfsm.Space. A tenant whose file is not there, because a
// crash interrupted its replacement, is listed at index 0. It is called at the
// start, when every file is opened once, and then while apply waits, when none
// is: by then all indexes are known.
func (s *Space) Files() ([]store.FileState, error) {
	rows, err := s.Tenants()
	if err != nil {
		return nil, err
	}
	states := make([]store.FileState, 1, len(rows)+1)
	if states[0].Index, err = s.applied(""); err != nil {
		return nil, err
	}
	for _, row := range rows {
		state := store.FileState{Target: string(row.UID), Epoch: uint64(row.Epoch), Folder: filepath.Join(string(row.UID), row.Folder)}
		if index, known := s.tenants.Applied(state.Target); known {
			state.Index = index
		} else if _, missing := os.Stat(s.path(row.UID, row.Folder)); missing == nil {
			state.Index, err = s.applied(state.Target)
		} else if !errors.Is(missing, os.ErrNotExist) {
			err = missing
		}
		if err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, nil
}

func (s *Space) applied(target string) (uint64, error) {
	f, release, err := s.Acquire(target)
	if err != nil {
		return 0, err
	}
	defer release()
	return f.Control().Applied, nil
}

// Install implements raftfsm.Space.
func (s *Space) Install(files []raftfsm.Staged) error {
	s.swap.Lock()
	defer s.swap.Unlock()
	for _, f := range files {
		path := s.cellPath()
		if f.Target == "" {
			s.cell.Forget("")
		} else {
			if !filepath.IsLocal(f.Folder) {
				return fmt.Errorf("snapshot of %s names the folder %q", f.Target, f.Folder)
			}
			path = filepath.Join(s.dir, "tenants", f.Folder, "tenant.db")
			s.tenants.Forget(f.Target)
			s.presences.gone(tenant.UID(f.Target))
		}
		if err := f.Place(path); err != nil {
			return fmt.Errorf("install %s: %w", path, err)
		}
	}
	s.mu.Lock()
	clear(s.known)
	s.mu.Unlock()
	return nil
}

// Sync implements raftfsm.Space.
func (s *Space) Sync() error {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return errors.Join(s.cell.Sync(), s.tenants.Sync())
}

// Open is how many tenants' files are open.
func (s *Space) Open() int { return s.tenants.Open() }

// Noticed takes an error that a read met. A file that is damaged here may be whole
// on other nodes, so this one had better stop than go on leading without it.
func (s *Space) Noticed(err error) (damaged bool) {
	if damaged = store.IsCorrupt(err); damaged {
		s.fail(err)
	}
	return damaged
}

func (s *Space) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Failed delivers the error of a file that is damaged or could not commit: the
// node stops. What a commit lost is found in the log at the next start.
func (s *Space) Failed() <-chan error { return s.failed }

// Close closes every file once its users are done. The last connection of a file
// moves its WAL into it.
func (s *Space) Close() error { return errors.Join(s.tenants.Close(), s.cell.Close()) }

// Guard is the fence: it runs in the command's own transaction, before its key
// is looked up and before its handler.
func (s *Space) Guard(tx *store.Tx, d raftfsm.Definition, c *raftfsm.Command) error {
	ctl := tx.Control()
	if string(ctl.UID) != c.Target {
		return fmt.Errorf("command %s for %q met the file of %q", d.Name, c.Target, ctl.UID)
	}
	switch d.Class {
	case raftfsm.Control:
		if c.Target != "" {
			return fault.New(fault.Invalid, "wrong-target", "this command is for the cell itself")
		}
		return nil
	case raftfsm.TenantWrite:
		if c.Target == "" {
			return fault.New(fault.Invalid, "wrong-target", "this command is for a tenant")
		}
		key, err := s.Key()
		if err != nil {
			return err
		}
		s.watch(tx, ctl.UID)
		return Admit(*ctl, key, tenant.Epoch(c.Epoch))
	}
	return fmt.Errorf("command %s has the unknown class %d", d.Name, d.Class)
}

// Key is the cell's key, "" before InitCell. Once there it never changes, and
// whoever uses a file may ask for it.
func (s *Space) Key() (tenant.CellKey, error) {
	if key := s.key.Load(); key != nil {
		return *key, nil
	}
	f, release, err := s.Acquire("")
	if err != nil {
		return "", err
	}
	defer release()
	key := f.Control().CellKey
	if key != "" {
		s.key.Store(&key)
	}
	return key, nil
}

// Admit is the fence itself: a request that was authorized for epoch may touch a
// file only where the control row names this cell's key and that epoch, and is
// ACTIVE. The refusal tells the epoch that the cell knows.
func Admit(ctl store.Control, key tenant.CellKey, epoch tenant.Epoch) error {
	switch {
	case key == "" || ctl.CellKey != key, ctl.State == tenant.Importing, ctl.State == tenant.Retired:
		return ErrNotHere.With("epoch", uint64(ctl.Epoch))
	case ctl.Epoch != epoch:
		return fault.New(fault.Moved, "placement-changed", "the tenant's epoch is another one").With("epoch", uint64(ctl.Epoch))
	case ctl.State == tenant.Frozen:
		return ErrFenced.With("epoch", uint64(ctl.Epoch))
	case ctl.State != tenant.Active:
		return fmt.Errorf("control row of %s has the state %q", ctl.UID, ctl.State)
	}
	return nil
}
