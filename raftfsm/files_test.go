package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// The commands of the tests: a group of files of numbered items.
const (
	cmdPut    Number = iota + 1 // one row
	cmdRefuse                   // writes a row and then refuses
	cmdOpen                     // on the group's own file: makes a target
	cmdFail                     // fails on members that are told to
	cmdMark                     // of class Probe
)

type put struct {
	_ struct{} `cbor:",toarray"`
	K string
	V int64
}

type open struct {
	_      struct{} `cbor:",toarray"`
	Target string
}

func testSchema(kind string) *store.Schema {
	return &store.Schema{Kind: kind, Migrations: []string{`
		CREATE TABLE item (k TEXT NOT NULL, v INTEGER NOT NULL, at INTEGER NOT NULL, n INTEGER PRIMARY KEY) STRICT;` + KeyTable}}
}

// files is a Space in a folder: own.db and <target>.db.
type files struct {
	dir string

	mu   sync.Mutex
	open map[string]*store.File

	failing   func(target string) error                  // local failures of Acquire
	install   func(step string) error                    // atInstall; under mu
	onAcquire func(target string)                        // sees every Acquire
	onSync    func() error                               // in place of the sync when set
	handler   func(tx *store.Tx, c *Command) (err error) // cmdFail
	look      Look                                       // cmdMark
}

func newFiles(t testing.TB, dir string) *files {
	t.Helper()
	fs := &files{dir: dir, open: make(map[string]*store.File)}
	if err := store.Create(fs.path(""), testSchema("own"), store.Control{CellKey: "key"}, 0); err != nil {
		t.Fatal(err)
	}
	return fs
}

func (fs *files) path(target string) string {
	if target == "" {
		target = "own"
	}
	return filepath.Join(fs.dir, target+".db")
}

func (fs *files) Acquire(target string) (*store.File, func(), error) {
	if fs.onAcquire != nil {
		fs.onAcquire(target)
	}
	if fs.failing != nil {
		if err := fs.failing(target); err != nil {
			return nil, nil, err
		}
	}
	if target != "" {
		if _, err := os.Stat(fs.absence(target)); err == nil {
			return nil, nil, ErrAbsent
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.open[target]; f != nil {
		return f, func() {}, nil
	}
	kind := "tenant"
	if target == "" {
		kind = "own"
	}
	if _, err := os.Stat(fs.path(target)); errors.Is(err, os.ErrNotExist) {
		return nil, nil, fault.New(fault.Moved, "placement-changed", "not here")
	}
	f, err := store.Open(fs.path(target), testSchema(kind))
	if err != nil {
		return nil, nil, err
	}
	fs.open[target] = f
	return f, func() {}, nil
}

func (fs *files) Files() ([]store.FileState, error) {
	paths, err := filepath.Glob(filepath.Join(fs.dir, "*.db"))
	if err != nil {
		return nil, err
	}
	states := make([]store.FileState, 1)
	for _, p := range paths {
		target := filepath.Base(p[:len(p)-len(".db")])
		if target == "own" {
			target = ""
		}
		f, release, err := fs.Acquire(target)
		if errors.Is(err, ErrAbsent) {
			states = append(states, store.FileState{Target: target, Absent: true})
			continue
		}
		if err != nil {
			return nil, err
		}
		state := store.FileState{Target: target, Index: f.Control().Applied}
		release()
		if target == "" {
			states[0] = state
		} else {
			states = append(states, state)
		}
	}
	return states, nil
}

func (fs *files) Sync() error {
	if fs.onSync != nil {
		return fs.onSync()
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.open {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// Absences are files of their own beside the targets': <target>.absent.
func (fs *files) absence(target string) string { return filepath.Join(fs.dir, target+".absent") }

func (fs *files) Damaged(target string, cause error) error {
	return os.WriteFile(fs.absence(target), []byte(cause.Error()), 0o600)
}

func (fs *files) Absent() int {
	all, _ := filepath.Glob(fs.absence("*"))
	return len(all)
}

func (fs *files) Recover([]store.FileState) error { return nil }

func (fs *files) Installed(in Installation) (bool, error) {
	f, release, err := fs.Acquire("")
	if err != nil {
		return false, err
	}
	defer release()
	done, err := os.ReadFile(filepath.Join(fs.dir, "installed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return (in.ID == "" || in.ID == string(done)) && f.Control().Applied >= in.OwnIndex(), nil
}

// atInstall has fn called before each step of Install, by a member that may run.
func (fs *files) atInstall(fn func(step string) error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.install = fn
}

func (fs *files) step(name string) error {
	fs.mu.Lock()
	fn := fs.install
	fs.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(name)
}

func (fs *files) Install(in Installation) error {
	if err := errors.Join(fs.step("sync"), fs.Sync()); err != nil {
		return err
	}
	local, err := fs.Files()
	if err != nil {
		return err
	}
	have := make(map[string]uint64)
	for _, f := range local {
		have[f.Target] = f.Index
	}
	for _, f := range in.Files[1:] {
		if index, there := have[f.Target]; !there || index < f.Index || f.Absent {
			if err := errors.Join(fs.step("mark"), fs.Damaged(f.Target, errors.New("behind"))); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(fs.step("note"), os.WriteFile(filepath.Join(fs.dir, "installed"), []byte(in.ID), 0o600)); err != nil {
		return err
	}
	if have[""] >= in.OwnIndex() {
		return nil
	}
	if err := errors.Join(fs.step("place"), fs.forget("")); err != nil {
		return err
	}
	return errors.Join(in.Place(fs.path("")), fs.step("placed"))
}

func (fs *files) forget(target string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[target]
	delete(fs.open, target)
	if f == nil {
		return nil
	}
	return f.Close()
}

// fetch copies an absent target's file from another member and has the group
// catch it up.
func (fs *files) fetch(ctx context.Context, g *Group, target string, from *member) error {
	asOf := from.group.Applied()
	f, release, err := from.files.Acquire(target)
	if err != nil {
		return err
	}
	defer release()
	staged := filepath.Join(fs.dir, target+".staged")
	if err := errors.Join(store.Remove(staged), f.CopyTo(staged)); err != nil {
		return err
	}
	copied, err := store.Open(staged, testSchema("tenant"))
	if err != nil {
		return err
	}
	err = g.CatchUp(ctx, target, copied, asOf, func() error {
		if err := errors.Join(copied.Close(), fs.forget(target), store.Remove(fs.path(target))); err != nil {
			return err
		}
		return errors.Join(os.Rename(staged, fs.path(target)), os.Remove(fs.absence(target)))
	})
	return errors.Join(err, copied.Close())
}

func (fs *files) close(t testing.TB) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for target, f := range fs.open {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		delete(fs.open, target)
	}
}

func (fs *files) table() *Table {
	return NewTable(
		DefineMark(cmdMark, "mark", func(c *Command, m Mark, index uint64, f *store.File, err error) {
			if fs.look != nil {
				fs.look(c, m, index, f, err)
			}
		}),
		Define(cmdPut, "put", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			return b.V, tx.Query("INSERT INTO item (k, v, at) VALUES (?, ?, ?)", nil, b.K, b.V, tx.Now)
		}),
		Define(cmdRefuse, "refuse", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			if err := tx.Query("INSERT INTO item (k, v, at) VALUES (?, ?, ?)", nil, b.K, b.V, tx.Now); err != nil {
				return 0, err
			}
			return 0, fault.New(fault.Conflict, "no", "not this one")
		}),
		Define(cmdOpen, "open", Control, func(tx *store.Tx, c *Command, b open) (int64, error) {
			return 0, store.Create(fs.path(b.Target), testSchema("tenant"), store.Control{
				UID: tenant.UID(b.Target), Tenant: tenant.ID(b.Target), CellKey: "key", Epoch: 1, State: tenant.Active, Applied: tx.Index,
			}, tx.Now)
		}),
		Define(cmdFail, "fail", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
			if fs.handler == nil {
				return 0, nil
			}
			return 0, fs.handler(tx, c)
		}),
	)
}

// rows returns how many items of key k a target has here.
func (fs *files) rows(t testing.TB, target, k string) (n int) {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = f.View(func(c *store.Conn) error {
		_, err := c.One("SELECT count(*) FROM item WHERE k = ?", func(r *store.Row) error { n = r.ColumnInt(0); return nil }, k)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (fs *files) control(t testing.TB, target string) store.Control {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return f.Control()
}

// content is everything that a target's file says, applied index left out.
func (fs *files) content(t testing.TB, target string) string {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	out := ""
	err = f.View(func(c *store.Conn) error {
		if err := c.Query("SELECT n, k, v, at FROM item ORDER BY n", func(r *store.Row) error {
			out += fmt.Sprintf("%d %s %d %d\n", r.ColumnInt64(0), r.ColumnText(1), r.ColumnInt64(2), r.ColumnInt64(3))
			return nil
		}); err != nil {
			return err
		}
		return c.Query("SELECT hex(identity), hex(result) FROM idempotency ORDER BY 1", func(r *store.Row) error {
			out += r.ColumnText(0) + r.ColumnText(1) + "\n"
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctl := f.Control()
	return out + fmt.Sprint(ctl.Sequence, ctl.LastTime)
}
