package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"zombiezen.com/go/sqlite"

	"celld/store/failpoint"
	"celld/store/room"
	"celld/store/stall"
	"celld/store/tenant"
)

// File is an open file. Its methods may be called from any goroutine.
type File struct {
	path   string
	schema *Schema
	slots  *Slots // shared by all files of a process; nil for no bound
	share  *share // of the process's descriptors; nil for no bound

	mu      sync.Mutex // the writer
	w       *Conn
	open    atomic.Bool             // a transaction is open; changes under mu
	dirty   int                     // commands kept in it
	broken  error                   // why the file may not be used any more
	lost    func(error)             // hears of broken; nil for nobody
	behind  bool                    // commits come later than updates
	budget  *budget                 // of what open transactions hold in memory; nil for none
	charged int64                   // bytes of the open transaction in it
	size    int64                   // bytes of the file at the last commit, WAL included
	room    *room.Room              // a commit waits while there is none; nil if commits cannot wait
	disk    *stall.Watch            // of calls that may hang; nil for nobody
	control atomic.Pointer[Control] // after the last update
	wal     wal                     // how much of it waits for a checkpoint
	given   map[string]int64        // numbers given out last, by what they count; for the holder of mu

	missed atomic.Int32 // Views that found the writer busy and no reader

	rmu     sync.Mutex
	free    []*Conn
	parked  int       // descriptors of closed readers, see perReader
	going   int       // readers that closeFree is closing
	views   int       // that read now, on readers
	viewed  sync.Cond // one of them is done; on rmu
	keepers []*Pin    // that keep the WAL up to some size
	closed  bool
}

var (
	errUnfinished = errors.New("the file was never finished")
	errUnsound    = errors.New("the file is not sound")
	errPanicked   = errors.New("an update ended in a panic")
)

// Open opens a file that Create made. It refuses a schema newer than the
// program's.
func Open(path string, schema *Schema) (*File, error) {
	w, err := openConn(path, writerPragmas, sqlite.OpenReadWrite|sqlite.OpenWAL)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, schema: schema, w: w, given: make(map[string]int64)}
	control, version, err := f.readIdentity(w)
	if err == nil && version > schema.Version() {
		err = fmt.Errorf("schema version %d is newer than this program's %d; run the newer program", version, schema.Version())
	}
	if err != nil {
		_ = w.c.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f.control.Store(&control)
	f.viewed.L = &f.rmu
	return f, nil
}

func (f *File) readControl(c *Conn) (Control, error) {
	control, _, err := f.readIdentity(c)
	return control, err
}

// readIdentity reads the control row and the schema version, in one statement:
// a file that is opened for one request pays for each.
func (f *File) readIdentity(c *Conn) (ctl Control, version int, err error) {
	found, err := c.One("SELECT uid, tenant_id, cell_key, epoch, state, move_id, applied_index, sequence, last_time, (SELECT max(version) FROM schema_version) FROM "+f.schema.controlTable(), func(r *Row) error {
		ctl = Control{
			UID: tenant.UID(r.ColumnText(0)), Tenant: tenant.ID(r.ColumnText(1)), CellKey: tenant.CellKey(r.ColumnText(2)),
			Epoch: tenant.Epoch(r.ColumnInt64(3)), Move: tenant.MoveID(r.ColumnText(5)),
			Applied: uint64(r.ColumnInt64(6)), Sequence: uint64(r.ColumnInt64(7)), LastTime: r.ColumnInt64(8),
		}
		version = r.ColumnInt(9)
		if name := r.ColumnText(4); name != "" {
			state, ok := tenant.ParseState(name)
			if !ok {
				return fmt.Errorf("control row has the unknown state %q", name)
			}
			ctl.State = state
		}
		return nil
	})
	if err != nil && sqlite.ErrCode(err) == sqlite.ResultError { // no such table, or not as Create makes it
		tables := 0
		_, look := c.One("SELECT count(*) FROM sqlite_schema WHERE name = ?", func(r *Row) error { tables = r.ColumnInt(0); return nil }, f.schema.controlTable())
		if look == nil && tables == 0 {
			return ctl, 0, errUnfinished
		}
		return ctl, 0, errors.Join(err, look)
	}
	if err == nil && !found {
		err = errUnfinished
	}
	return ctl, version, err
}

// Control is the control row after the last update, committed or not. Read after
// some rows it is never older than they are.
func (f *File) Control() Control { return *f.control.Load() }

// Path is where the file lies.
func (f *File) Path() string { return f.path }

func (f *File) enter() { f.slots.enter() }

func (f *File) leave() { f.slots.leave() }

// Update runs fn in the file's write transaction, at an entry boundary. What its
// savepoints kept is visible to View, Scan and Control when Update returns. After
// an error nothing of it remains; if that took away earlier updates which were
// not committed yet, the file refuses further use until it is opened again. A
// panic of fn's counts as an error, and goes on.
func (f *File) Update(fn func(*Tx) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	f.enter()
	defer f.leave()
	if !f.open.Load() {
		if err := f.w.Query("BEGIN IMMEDIATE", nil); err != nil {
			return err
		}
		f.open.Store(true)
		if f.size == 0 {
			if err := f.measure(); err != nil {
				return f.fail(err)
			}
		}
	}
	tx := &Tx{Conn: f.w, file: f, control: *f.control.Load()}
	returned := false
	defer func() {
		if !returned {
			_ = f.fail(errPanicked) // the panic says more
		}
	}()
	err := fn(tx)
	returned = true
	if err != nil {
		return f.fail(err)
	}
	if tx.kept > 0 {
		f.dirty += tx.kept
		// Before the commit, so that no reader sees rows that the control row in
		// memory does not know of.
		f.control.Store(&tx.control)
	}
	if f.dirty == 0 || !f.behind || f.charge() {
		if err := f.commit(); !errors.Is(err, room.ErrFull) {
			return err
		}
	}
	return nil
}

func (f *File) usable() error {
	if f.w == nil {
		return os.ErrClosed
	}
	return f.broken
}

func (f *File) writeControl(c *Control) error {
	return f.w.Query("UPDATE "+f.schema.controlTable()+` SET uid = ?, tenant_id = ?, cell_key = ?, epoch = ?, state = ?,
		move_id = ?, applied_index = ?, sequence = ?, last_time = ?`, nil, c.values()...)
}

// commit ends the open transaction, if there is one. While the disk has no room
// the transaction stays open, for a commit that fails undoes it: room.ErrFull. The
// caller holds mu and a slot.
func (f *File) commit() error {
	if f.open.Load() && f.dirty > 0 && f.room.Look() == room.None {
		return f.room.Err()
	}
	return f.commitNow()
}

func (f *File) commitNow() error {
	if !f.open.Load() {
		return nil
	}
	end := "ROLLBACK"
	if f.dirty > 0 {
		end = "COMMIT"
		if err := f.measure(); err != nil {
			return f.fail(err)
		}
		if err := f.writeControl(f.control.Load()); err != nil {
			return f.fail(err)
		}
	}
	failpoint.Here(failpoint.CommitBegun)
	returned := f.disk.Begin(end, f.path, stall.Short)
	err := f.w.Query(end, nil)
	returned()
	if err != nil {
		return f.fail(err)
	}
	failpoint.Here(failpoint.CommitDone)
	f.dirty = 0
	f.uncharge()
	f.wal.grown(f.path)
	f.endOutgrown()
	f.open.Store(false)
	return nil
}

// fail undoes the open transaction. If that takes away earlier updates too, err
// is the file's last word.
func (f *File) fail(err error) error {
	clear(f.given)
	f.uncharge()
	undone := true
	if !f.w.c.AutocommitEnabled() {
		if undo := f.w.Query("ROLLBACK", nil); undo != nil {
			err, undone = errors.Join(err, undo), false
		}
	}
	if f.dirty > 0 || !undone {
		f.broken = fmt.Errorf("%s has lost updates that the log holds: %w", f.path, err)
		if f.lost != nil {
			f.lost(f.broken)
		}
		return err
	}
	f.open.Store(false)
	return err
}

// Commit commits what is open.
func (f *File) Commit() error {
	if !f.open.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	f.enter()
	defer f.leave()
	return f.commit()
}

// CopyTo writes a copy of the file as it is now, page for page, to path, which
// must not exist, and makes it durable.
func (f *File) CopyTo(path string) (err error) {
	p, err := f.Pin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.CopyTo(path)
}

// Close closes all connections; the last of them moves the WAL into the file.
// The file is durable when Close returns nil. The caller makes sure that nothing
// uses the file any more.
func (f *File) Close() error {
	err := f.closeReaders()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w != nil {
		if f.broken == nil {
			err = errors.Join(err, f.commitNow())
		}
		returned := f.disk.Begin("closing", f.path, stall.Long)
		err = errors.Join(err, f.w.c.Close())
		returned()
		f.w = nil
		f.unpark()
		if err == nil {
			err = f.syncWAL() // is still there if it could not be moved: SQLite does not say so
		}
	}
	return err
}
