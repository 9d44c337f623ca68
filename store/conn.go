package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	driver "modernc.org/sqlite" // for its lock switch; statements go through zombiezen's interface
	"zombiezen.com/go/sqlite"
)

// Row is the current row of a query. Columns count from 0.
type Row = sqlite.Stmt

// Conn runs statements on one connection. Statements are prepared once and kept.
type Conn struct {
	c     *sqlite.Conn
	ready map[string]*sqlite.Stmt // reset, each parameter to be bound anew
}

var lockMode = sync.OnceValue(func() error {
	if _, err := driver.OFDLocking(true); err != nil && !errors.Is(err, driver.ErrOFDLockingUnavailable) {
		return fmt.Errorf("switch SQLite to open-file-description locks: %w", err)
	}
	return nil
})

const readerPragmas = `
PRAGMA synchronous = NORMAL;
PRAGMA foreign_keys = ON;
PRAGMA wal_autocheckpoint = 0;
PRAGMA trusted_schema = OFF;
PRAGMA temp_store = MEMORY;`

const writerPragmas = readerPragmas + `
PRAGMA cache_spill = OFF;
PRAGMA mmap_size = 0;`

func openConn(path string, pragmas string, flags sqlite.OpenFlags) (*Conn, error) {
	if err := lockMode(); err != nil {
		return nil, err
	}
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	conn := &Conn{c: c, ready: make(map[string]*sqlite.Stmt)}
	c.SetBusyTimeout(5 * time.Second)
	if err := conn.script(pragmas); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return conn, nil
}

func (c *Conn) script(sql string) error {
	// Space behind the last statement would be prepared as a statement of nothing.
	for sql = strings.TrimSpace(sql); sql != ""; sql = strings.TrimSpace(sql) {
		stmt, rest, err := c.c.PrepareTransient(sql)
		if err != nil {
			return err
		}
		sql = sql[len(sql)-rest:]
		for more := true; more && err == nil; {
			more, err = stmt.Step()
		}
		if fin := stmt.Finalize(); err == nil {
			err = fin
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Query calls row for each row of the answer; row's error ends the query and is
// returned. Arguments are string, []byte, int, int64, uint64 (as its 64 bits),
// bool and nil. row must not run the same statement again.
func (c *Conn) Query(sql string, row func(*Row) error, args ...any) error {
	stmt := c.ready[sql]
	if stmt == nil {
		var err error
		if stmt, err = c.c.Prepare(sql); err != nil {
			return err
		}
		c.ready[sql] = stmt
	}
	err := bind(stmt, args)
	for err == nil {
		var more bool
		if more, err = stmt.Step(); err != nil || !more {
			break
		}
		if row != nil {
			err = row(stmt)
		}
	}
	if reset := stmt.Reset(); err == nil {
		err = reset
	}
	return err
}

// One reads the first row, if there is one, and reports whether there was.
func (c *Conn) One(sql string, row func(*Row) error, args ...any) (found bool, err error) {
	err = c.Query(sql, func(r *Row) error {
		if found {
			return nil
		}
		found = true
		if row == nil {
			return nil
		}
		return row(r)
	}, args...)
	return found, err
}

// bind sets every parameter: a statement kept from an earlier use has none left
// over, because each use binds them all.
func bind(stmt *sqlite.Stmt, args []any) error {
	if n := stmt.BindParamCount(); n != len(args) {
		return fmt.Errorf("statement has %d parameters, %d given", n, len(args))
	}
	for i, arg := range args {
		switch v := arg.(type) {
		case nil:
			stmt.BindNull(i + 1)
		case string:
			stmt.BindText(i+1, v)
		case []byte:
			if v == nil {
				stmt.BindNull(i + 1)
			} else {
				stmt.BindBytes(i+1, v)
			}
		case int64:
			stmt.BindInt64(i+1, v)
		case int:
			stmt.BindInt64(i+1, int64(v))
		case uint64:
			stmt.BindInt64(i+1, int64(v))
		case bool:
			stmt.BindBool(i+1, v)
		default:
			return fmt.Errorf("parameter %d has the unsupported type %T", i+1, arg)
		}
	}
	return nil
}

// Bytes copies a column's bytes out of the row.
func Bytes(r *Row, col int) []byte {
	b := make([]byte, r.ColumnLen(col))
	r.ColumnBytes(col, b)
	return b
}

// IsUnique reports whether err is a violated UNIQUE or PRIMARY KEY constraint.
func IsUnique(err error) bool {
	switch sqlite.ErrCode(err) {
	case sqlite.ResultConstraintUnique, sqlite.ResultConstraintPrimaryKey, sqlite.ResultConstraintRowID:
		return true
	}
	return false
}

// IsForeignKey reports whether err is a violated foreign key.
func IsForeignKey(err error) bool {
	return sqlite.ErrCode(err) == sqlite.ResultConstraintForeignKey
}

// IsCorrupt reports whether err says that the file itself is bad.
func IsCorrupt(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return true
	}
	return false
}

// IsFull reports whether err says that the disk is full.
func IsFull(err error) bool { return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull }

// Version is the linked SQLite's version.
func Version() string { return sqlite.Version }
