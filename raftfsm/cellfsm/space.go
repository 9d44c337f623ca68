package cellfsm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"celld/raftfsm"
	"celld/store"
	"celld/store/room"
	"celld/store/stall"
	"celld/store/tenant"
)

// Space is the files of one cell on one node: cell.db, the tenants', and local.db
// with what only this replica knows. It is what package raftfsm replicates into,
// and the guard of the cell's commands.
type Space struct {
	dir      string
	log      *slog.Logger
	local    *store.Local
	cell     *store.Handles // holds cell.db alone
	tenants  *store.Handles
	failed   chan error    // holds the first error that ends the node
	absence  chan struct{} // holds one: an absence has come
	sweeping chan struct{} // holds one: there is something to sweep
	key      atomic.Pointer[tenant.CellKey]
	onMark   raftfsm.Look // nil for nobody

	// presences are what reads go by without opening a file. Whoever replaces a
	// tenant's file, or has it read no more, calls presences.gone.
	presences presences

	// swap is held to read while a file is being opened, and to write while one
	// takes another's place: nothing opens a file that is about to go. Whoever
	// holds it to write waits for the users of a file, so nobody asks for swap
	// while using one.
	swap       sync.RWMutex
	mu         sync.RWMutex
	known      map[tenant.UID]*seat   // tenants that were asked for
	absent     map[tenant.UID]Absence // as in local.db
	installing bool                   // absences are recorded whose tenants cell.db may lack yet
	places     map[tenant.UID]place   // as in local.db
	reached    map[tenant.UID]uint64  // what files hold at the least that were not checked since the start
	changed    map[tenant.UID]uint64  // the last entry that changed a tenant's row, since the start
	unswept    map[tenant.UID]struct{}

	step func(name string) error // nil; tests fail or crash at a step of Install and Place
}

func (s *Space) at(step string) error {
	if s.step == nil {
		return nil
	}
	return s.step(step)
}

// seat is a tenant with the file that this replica has of it.
type seat struct {
	row     Tenant
	path    string
	checked atomic.Bool // the file is the tenant's and holds what it should
}

func (s *seat) key() string { return handleKey(s.row.UID, s.row.Folder) }

// commitAge is how long a tenant's transaction stays open. What a crash takes of
// it is applied again from the log.
const commitAge = 2 * time.Second

// OpenSpace opens the files below dir, and makes cell.db if there is none yet.
// At most maxOpen tenants' files are open at once, within descriptors; slots bounds
// the calls into SQLite. Zero and nil are no bound.
func OpenSpace(dir string, maxOpen int, descriptors *store.Descriptors, slots *store.Slots, log *slog.Logger) (*Space, error) {
	s := &Space{
		dir: dir, log: log, failed: make(chan error, 1), absence: make(chan struct{}, 1), sweeping: make(chan struct{}, 1), known: make(map[tenant.UID]*seat),
		changed: make(map[tenant.UID]uint64), unswept: make(map[tenant.UID]struct{}),
		absent: make(map[tenant.UID]Absence), places: make(map[tenant.UID]place), reached: make(map[tenant.UID]uint64),
	}
	if err := os.MkdirAll(filepath.Join(dir, "tenants"), 0o700); err != nil { // made durable with cell.db
		return nil, err
	}
	err := s.openLocal() // before cell.db is made: a cell.db alone has lost its local.db
	if err == nil {
		err = store.Create(s.cellPath(), CellSchema(), store.Control{}, 0)
	}
	if err != nil {
		if s.local != nil {
			err = errors.Join(err, s.local.Close())
		}
		return nil, err
	}
	if s.cell, err = store.NewHandles(CellSchema(), 1, descriptors, slots, log); err != nil {
		return nil, errors.Join(err, s.local.Close())
	}
	if s.tenants, err = store.NewHandles(TenantSchema(), maxOpen, descriptors, slots, log); err != nil {
		return nil, errors.Join(err, s.cell.Close(), s.local.Close())
	}
	s.tenants.WriteBehind(commitAge, s.lost)
	if _, err := s.Key(); err != nil { // a bad cell.db is noticed now
		return nil, errors.Join(err, s.Close())
	}
	s.tellSweep("")
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

// KeepRoom has commits of tenants' files wait while disk has no room. It is called
// before the first Acquire.
func (s *Space) KeepRoom(disk *room.Room) { s.tenants.KeepRoom(disk) }

// WatchDisk has w watch the calls to the disk that may hang. It is called before
// the first Acquire.
func (s *Space) WatchDisk(w *stall.Watch) {
	s.local.WatchDisk(w)
	s.cell.WatchDisk(w)
	s.tenants.WatchDisk(w)
}

// Resident implements raftfsm.Resident.
func (s *Space) Resident(target string) bool {
	uid := tenant.UID(target)
	s.mu.RLock()
	seat := s.known[uid]
	_, absent := s.absent[uid]
	s.mu.RUnlock()
	return absent || seat != nil && s.tenants.Holds(seat.key())
}

func (s *Space) cellPath() string { return filepath.Join(s.dir, "cell.db") }

func (s *Space) path(uid tenant.UID, folder string) string {
	return filepath.Join(s.dir, "tenants", string(uid), folder, "tenant.db")
}

// Acquire implements raftfsm.Space: the file of a tenant by its uid, cell.db for
// "". A tenant that cell.db does not have is ErrNotHere. A file that is not there,
// or bad, or lacks what it should hold, makes its tenant absent.
func (s *Space) Acquire(target string) (*store.File, func(), error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.acquire(target)
}

func (s *Space) acquire(target string) (*store.File, func(), error) {
	if target == "" {
		return s.cell.Acquire("", s.cellPath())
	}
	seat, absent, err := s.seat(tenant.UID(target))
	if err != nil {
		return nil, nil, err
	}
	return s.take(seat, absent)
}

func (s *Space) take(seat *seat, absent bool) (*store.File, func(), error) {
	if absent {
		return nil, nil, ErrAbsent
	}
	f, release, err := s.tenants.Acquire(seat.key(), seat.path)
	if err == nil {
		if err = s.check(seat, f); err == nil {
			return s.hand(seat, f, release)
		}
		release()
	} else if err = missing(seat.path, err); !errors.Is(err, errBad) && !store.IsBad(err) {
		return nil, nil, fmt.Errorf("tenant %s: %w", seat.row.UID, err)
	}
	if marking := s.mark(seat.row.UID, err.Error()); marking != nil {
		return nil, nil, errors.Join(err, marking)
	}
	return nil, nil, ErrAbsent.Because(err)
}

// Keep is Acquire for whoever uses the target's file f already. It asks for no lock
// that somebody holds who waits for a file: apply may call it.
func (s *Space) Keep(target string, f *store.File) (release func(), ok bool) {
	if target == "" {
		return s.cell.Keep("", f)
	}
	incarnation, _, _ := strings.Cut(filepath.Base(filepath.Dir(f.Path())), ".")
	return s.tenants.Keep(handleKey(tenant.UID(target), incarnation), f)
}

// hand gives out a file, unless its tenant has become absent meanwhile: then there
// must be no presence of it, by which remembered records would be answered. Nor is
// there one of a file whose place another incarnation has taken meanwhile.
func (s *Space) hand(seat *seat, f *store.File, release func()) (*store.File, func(), error) {
	uid := seat.row.UID
	if !s.presences.opened(uid, f, seat.row.Folder) {
		release()
		return nil, nil, ErrNotHere.With("epoch", uint64(seat.row.Epoch))
	}
	if s.IsAbsent(uid) {
		s.presences.gone(uid)
		release()
		return nil, nil, ErrAbsent
	}
	return f, release, nil
}

// errBad says that a tenant's file can't be used.
var errBad = errors.New("the file is bad")

// missing tells a file that is not there from one that can't be opened, for want
// of descriptors for example.
func missing(path string, err error) error {
	if _, there := os.Stat(path); errors.Is(there, os.ErrNotExist) {
		return fmt.Errorf("%w: it is missing (%w)", errBad, err)
	}
	return err
}

// check makes sure, once, that the file is the tenant's and holds what it held
// when the newest snapshot was taken or installed.
func (s *Space) check(seat *seat, f *store.File) error {
	if seat.checked.Load() {
		return nil
	}
	if err := seat.row.owns(f.Control()); err != nil {
		return fmt.Errorf("%w: %w", errBad, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := max(s.reached[seat.row.UID], seat.row.Changed)
	if have := f.Control().Applied; have < want {
		return fmt.Errorf("%w: it is at index %d and should be at %d at the least", errBad, have, want)
	}
	seat.checked.Store(true)
	return nil
}

// Tenant is cell.db's row about a tenant, or ErrNotHere.
func (s *Space) Tenant(uid tenant.UID) (Tenant, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.tenant(uid)
}

func (s *Space) tenant(uid tenant.UID) (Tenant, error) {
	seat, _, err := s.seat(uid)
	if err != nil {
		return Tenant{}, err
	}
	return seat.row, nil
}

// seat asks anew each time for what is unknown, because it may arrive at any
// moment. What is known stays until an entry changes the row (turned), and is kept
// only if that entry is in what was read.
func (s *Space) seat(uid tenant.UID) (have *seat, absent bool, err error) {
	s.mu.RLock()
	have = s.known[uid]
	_, absent = s.absent[uid]
	s.mu.RUnlock()
	if have != nil {
		return have, absent, nil
	}
	var row Tenant
	found, at := false, uint64(0)
	err = s.view(func(c *store.Conn) (err error) {
		// Before the row: what is read of it is this old at the most.
		if _, err = c.One("SELECT applied_index FROM group_control", func(r *store.Row) error { at = uint64(r.ColumnInt64(0)); return nil }); err == nil {
			row, found, err = readTenant(c, uid)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if !found {
		return nil, false, ErrNotHere
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have = s.known[uid]; have == nil {
		have = &seat{row: row, path: s.path(uid, s.folder(&row))}
		if at >= s.changed[uid] {
			s.known[uid] = have
		}
	}
	_, absent = s.absent[uid]
	return have, absent, nil
}

// folder is where this replica has a tenant's file, below tenants/<uid>. The
// caller holds mu.
func (s *Space) folder(row *Tenant) string {
	if p, ok := s.places[row.UID]; ok && p.incarnation == row.Folder {
		return p.folder
	}
	return row.Folder
}

// view reads cell.db. The caller holds swap. A damaged cell.db ends the node, and
// is not taken for a damaged tenant's file by whoever gets the error.
func (s *Space) view(fn func(*store.Conn) error) error {
	f, release, err := s.acquire("")
	if err == nil {
		err = f.View(fn)
		release()
	}
	if store.IsCorrupt(err) {
		s.fail(fmt.Errorf("cell.db: %w", err))
		return raftfsm.ErrNotLeader.Because(errors.New(err.Error()))
	}
	return err
}

// Tenants lists cell.db's rows in order of uid.
func (s *Space) Tenants() ([]Tenant, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	var rows []Tenant
	err := s.view(func(c *store.Conn) error {
		return c.Query("SELECT "+tenantColumns+" FROM tenant ORDER BY uid",
			func(r *store.Row) error {
				row, err := scanTenant(r)
				rows = append(rows, row)
				return err
			})
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

// Files implements raftfsm.Space. It opens no tenant's file: one that was not open
// since the start is as the newest snapshot says, or as it arrived, because every
// entry for it since would have opened it.
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
		if state.Absent = s.IsAbsent(row.UID); !state.Absent {
			state.Index, _ = s.reach(row)
		}
		states = append(states, state)
	}
	return states, nil
}

// reach is the applied index of a tenant's file, exactly if the file was open
// since the start, else at the least.
func (s *Space) reach(row Tenant) (index uint64, exact bool) {
	if index, exact = s.tenants.Applied(handleKey(row.UID, row.Folder)); exact {
		return index, true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(s.reached[row.UID], row.Changed), false
}

func (s *Space) applied(target string) (uint64, error) {
	f, release, err := s.Acquire(target)
	if err != nil {
		return 0, err
	}
	defer release()
	return f.Control().Applied, nil
}

// Sync implements raftfsm.Space. What the file of an absent tenant has lost is
// fetched with it.
func (s *Space) Sync() error {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return errors.Join(s.cell.Sync(nil), s.tenants.Sync(func(key string) bool { return s.IsAbsent(uidOfKey(key)) }))
}

// Open is how many tenants' files are open.
func (s *Space) Open() int { return s.tenants.Open() }

// Noticed takes an error that a read of a tenant's file met. A file that is damaged
// here may be whole on other nodes: the tenant becomes absent, and the others
// notice nothing.
func (s *Space) Noticed(uid tenant.UID, err error) (damaged bool) {
	if damaged = store.IsCorrupt(err); damaged {
		s.lost(string(uid), err)
	}
	return damaged
}

// lost hears of a file that failed to commit what it held, or is damaged. What is
// wrong with a file that no longer is the tenant's harms nobody.
func (s *Space) lost(key string, err error) {
	if key != "" && store.IsCorrupt(err) {
		uid, incarnation := uidOfKey(key), filepath.Base(key)
		s.mu.RLock()
		current := s.known[uid]
		s.mu.RUnlock()
		if current != nil && current.row.Folder != incarnation {
			s.log.Warn("a file that is not the tenant's any more is damaged", "uid", uid, "incarnation", incarnation, "error", err)
			return
		}
		if err = s.mark(uid, err.Error()); err == nil {
			return
		}
	}
	s.fail(err)
}

func (s *Space) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Failed delivers the error of a file that could not commit, or of a damaged
// cell.db: the node stops. What a commit lost is found in the log at the next
// start.
func (s *Space) Failed() <-chan error { return s.failed }

// Close closes every file once its users are done. The last connection of a file
// moves its WAL into it.
func (s *Space) Close() error {
	return errors.Join(s.tenants.Close(), s.cell.Close(), s.local.Close())
}
