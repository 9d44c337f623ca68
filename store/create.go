package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"celld/store/tenant"
)

// Control is a file's control row. Of a group's own file only the cell key and
// the counters are used.
type Control struct {
	UID      tenant.UID
	Tenant   tenant.ID
	CellKey  tenant.CellKey
	Epoch    tenant.Epoch
	State    tenant.State
	Move     tenant.MoveID // that froze or retired the tenant; of an ACTIVE one, that has brought it and no member has written since
	Applied  uint64        // the last log entry with an effect here, under CellKey
	Sequence uint64        // commands with an effect here, in any cell
	LastTime int64         // unix microseconds; never goes back
}

// Schema is the layout of one kind of file.
type Schema struct {
	Kind       string   // "tenant", or the kind of group whose own file it is
	Migrations []string // SQL scripts; the n-th leads to version n+1
}

// Version is the schema version that the program writes.
func (s *Schema) Version() int { return len(s.Migrations) }

const controlTables = `
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT;
CREATE TABLE %s (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  uid TEXT NOT NULL, tenant_id TEXT NOT NULL, cell_key TEXT NOT NULL,
  epoch INTEGER NOT NULL, state TEXT NOT NULL, move_id TEXT NOT NULL,
  applied_index INTEGER NOT NULL, sequence INTEGER NOT NULL, last_time INTEGER NOT NULL
) STRICT;`

func (s *Schema) controlTable() string {
	if s.Kind == "tenant" {
		return "tenant_control"
	}
	return "group_control"
}

// ErrNotEmpty says that there is a finished file with another control row where
// one should be created.
var ErrNotEmpty = errors.New("a file with another identity is already there")

// Create writes a new file at path with the control row init, durable with its
// parent folders when it returns. A half-written file of an earlier crash is
// replaced; a finished one with the same identity is left as it is.
func Create(path string, schema *Schema, init Control, at int64) error {
	if _, err := os.Stat(path); err == nil {
		f, err := Open(path, schema)
		if err == nil {
			have := f.Control()
			if err := f.Close(); err != nil {
				return err
			}
			if have.UID != init.UID || have.Tenant != init.Tenant || have.Epoch != init.Epoch {
				return fmt.Errorf("%s: %w", path, ErrNotEmpty)
			}
			return nil
		}
		if !errors.Is(err, errUnfinished) && !IsCorrupt(err) {
			return err
		}
		if err := Remove(path); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	c, err := openConn(path, writerPragmas, sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenWAL)
	if err != nil {
		return err
	}
	err = c.script("BEGIN IMMEDIATE;" + fmt.Sprintf(controlTables, schema.controlTable()))
	for i, m := range schema.Migrations {
		if err == nil {
			err = c.script(m)
		}
		if err == nil {
			err = c.Query("INSERT INTO schema_version (version, applied_at) VALUES (?, ?)", nil, i+1, at)
		}
	}
	if err == nil {
		err = c.Query("INSERT INTO "+schema.controlTable()+` (one, uid, tenant_id, cell_key, epoch, state, move_id, applied_index, sequence, last_time)
			VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, nil, init.values()...)
	}
	if err == nil {
		err = c.script("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);")
	}
	if closing := c.c.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncPath(path)
}

func (c Control) values() []any {
	return []any{string(c.UID), string(c.Tenant), string(c.CellKey), uint64(c.Epoch), c.State.String(), string(c.Move), c.Applied, c.Sequence, c.LastTime}
}

// Remove deletes a closed file with everything that SQLite keeps beside it.
func Remove(path string) error {
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
