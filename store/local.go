package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"zombiezen.com/go/sqlite"

	"celld/store/stall"
)

// Local is a small file of what one replica knows about itself and no other one
// needs to agree on. Unlike a File it has no control row and no log behind it:
// each update is durable when it returns. Its methods may be called from any
// goroutine.
type Local struct {
	path string

	mu sync.Mutex
	c  *Conn // nil when closed
	w  *stall.Watch
}

const localPragmas = connPragmas + "PRAGMA cache_size = -512; PRAGMA synchronous = FULL;"

// OpenLocal opens the file at path, and makes it if it is not there. The n-th of
// migrations is the SQL script that leads to layout n+1; the layout that a file
// has is in its user_version.
func OpenLocal(path string, migrations []string) (*Local, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	c, err := openConn(path, localPragmas, sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenWAL)
	if err != nil {
		return nil, err
	}
	l := &Local{path: path, c: c}
	if err := l.migrate(migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), l.Close())
	}
	if err := SyncFolders(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Local) migrate(migrations []string) error {
	version := 0
	if _, err := l.c.One("PRAGMA user_version", func(r *Row) error { version = r.ColumnInt(0); return nil }); err != nil {
		return err
	}
	if version > len(migrations) {
		return fmt.Errorf("layout %d is newer than this program's %d; run the newer program", version, len(migrations))
	}
	for i, m := range migrations[version:] {
		if err := l.c.script("BEGIN IMMEDIATE;" + m + ";PRAGMA user_version = " + strconv.Itoa(version+i+1) + "; COMMIT;"); err != nil {
			return err
		}
	}
	return nil
}

// WatchDisk has w watch the calls that may hang.
func (l *Local) WatchDisk(w *stall.Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = w
}

// Update runs fn in one transaction, durable when Update returns nil. After an
// error nothing of it remains.
func (l *Local) Update(fn func(*Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return os.ErrClosed
	}
	err := l.c.Query("BEGIN IMMEDIATE", nil)
	if err == nil {
		err = fn(l.c)
	}
	if err == nil {
		returned := l.w.Begin("COMMIT", l.path, stall.Short)
		err = l.c.Query("COMMIT", nil)
		returned()
	}
	if err != nil && !l.c.c.AutocommitEnabled() {
		err = errors.Join(err, l.c.Query("ROLLBACK", nil))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// View runs fn on what the updates so far have left.
func (l *Local) View(fn func(*Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return os.ErrClosed
	}
	if err := fn(l.c); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// Close closes the file.
func (l *Local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return nil
	}
	c := l.c
	l.c = nil
	return c.c.Close()
}
