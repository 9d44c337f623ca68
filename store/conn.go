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
	c       *sqlite.Conn
	ready   map[string]*prepared
	written int // statements that succeeded and are no SELECT; Tx counts from 0

	// The same since the last commit, with the bytes of their values: what they can
	// have changed at the most is estimated from that.
	statements, payload int64
}

// prepared is a statement between two uses: reset, its parameters as they were
// bound last. Binding copies, so that a value bound once stays; most values of a
// tenant's writes (tenant id, actor, event) are those of the write before.
type prepared struct {
	stmt   *sqlite.Stmt
	writes bool
	bound  []any // what each parameter is bound to; unbound where that is not known
	bytes  int64 // of all values of this use, about
}

// unbound stands for a value that was not kept: it differs from every argument.
type unbound struct{}

// keepBound is the longest text that is remembered as bound, in bytes.
const keepBound = 64

var lockMode = sync.OnceValue(func() error {
	if _, err := driver.OFDLocking(true); err != nil && !errors.Is(err, driver.ErrOFDLockingUnavailable) {
		return fmt.Errorf("switch SQLite to open-file-description locks: %w", err)
	}
	return nil
})

// connPragmas are for every connection. What they would only say again (mmap_size
// is 0) is left out: a pragma costs 20 us.
const connPragmas = `
PRAGMA synchronous = NORMAL;
PRAGMA foreign_keys = ON;
PRAGMA wal_autocheckpoint = 0;
PRAGMA trusted_schema = OFF;
PRAGMA temp_store = MEMORY;`

const readerPragmas = connPragmas + `
PRAGMA cache_size = -512;
PRAGMA query_only = ON;`

// A commit after the WAL began anew cuts its file to what it holds (journal_size_limit).
const writerPragmas = connPragmas + `
PRAGMA cache_spill = OFF;
PRAGMA cache_size = -1024;
PRAGMA journal_size_limit = 0;`

func openConn(path string, pragmas string, flags sqlite.OpenFlags) (*Conn, error) {
	if err := lockMode(); err != nil {
		return nil, err
	}
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	conn := &Conn{c: c, ready: make(map[string]*prepared)}
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
	p := c.ready[sql]
	if p == nil {
		stmt, err := c.c.Prepare(sql)
		if err != nil {
			return err
		}
		p = &prepared{stmt: stmt, writes: !strings.HasPrefix(sql, "SELECT"), bound: make([]any, stmt.BindParamCount())}
		c.ready[sql] = p
	}
	returned := false
	defer func() {
		if !returned { // row panicked: the connection goes on without what it had begun
			_ = p.stmt.Reset()
			p.forget()
		}
	}()
	err := p.bind(args)
	for err == nil {
		var more bool
		if more, err = p.stmt.Step(); err != nil || !more {
			break
		}
		if row != nil {
			err = row(p.stmt)
		}
	}
	returned = true
	if reset := p.stmt.Reset(); err == nil {
		err = reset
	}
	if err != nil {
		p.forget()
	} else if p.writes {
		c.written++
		c.statements++
		c.payload += p.bytes
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

// bind sets every parameter that is not bound to its value already.
func (p *prepared) bind(args []any) error {
	if len(p.bound) != len(args) {
		return fmt.Errorf("statement has %d parameters, %d given", len(p.bound), len(args))
	}
	p.bytes = int64(9 * len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			p.bytes += int64(len(v))
		case []byte:
			p.bytes += int64(len(v))
		}
		if p.bound[i] == arg { // never two []byte, which can't be compared: they are not kept
			continue
		}
		p.bound[i] = arg
		switch v := arg.(type) {
		case nil:
			p.stmt.BindNull(i + 1)
		case string:
			p.stmt.BindText(i+1, v)
			if len(v) > keepBound {
				p.bound[i] = unbound{}
			}
		case []byte:
			p.bound[i] = unbound{}
			if v == nil {
				p.stmt.BindNull(i + 1)
			} else {
				p.stmt.BindBytes(i+1, v)
			}
		case int64:
			p.stmt.BindInt64(i+1, v)
		case int:
			p.stmt.BindInt64(i+1, int64(v))
		case uint64:
			p.stmt.BindInt64(i+1, int64(v))
		case bool:
			p.stmt.BindBool(i+1, v)
		default:
			p.bound[i] = unbound{}
			return fmt.Errorf("parameter %d has the unsupported type %T", i+1, arg)
		}
	}
	return nil
}

// forget has the next use bind every parameter: after an error it is not known
// which of them took their values.
func (p *prepared) forget() {
	for i := range p.bound {
		p.bound[i] = unbound{}
	}
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

// IsBad reports whether err says that the file can't be used although the disk
// works: it is corrupt, or was never finished.
func IsBad(err error) bool {
	return IsCorrupt(err) || errors.Is(err, errUnsound) || errors.Is(err, errUnfinished)
}

// IsFull reports whether err says that the disk is full.
func IsFull(err error) bool { return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull }

// Version is the linked SQLite's version.
func Version() string { return sqlite.Version }
