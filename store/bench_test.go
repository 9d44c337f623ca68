package store

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
)

const (
	benchInsert = "INSERT INTO note (id, body, extra) VALUES (?, ?, ?)"
	benchSelect = "SELECT body, extra FROM note WHERE id = ?"
	benchBatch  = 64 // inserts in a transaction
	benchRows   = 10_000
)

// BenchmarkInterface is one engine behind three interfaces: database/sql, the
// driver's own (what database/sql calls), and Conn. A write is one insert into a
// table with an index, 64 to a transaction; a read is a row by its key. All
// statements are prepared once. cpu-us/op is the CPU of the process, which a busy
// machine changes less than the time.
func BenchmarkInterface(b *testing.B) {
	for _, of := range []struct {
		name string
		open func(b *testing.B, path string) (write func(i int) error, read func(i int) error)
	}{{"database-sql", viaSQL}, {"driver", viaDriver}, {"conn", viaConn}} {
		b.Run(of.name+"/write", func(b *testing.B) {
			write, _ := of.open(b, benchFile(b, 0))
			measured(b, func(i int) error { return write(i) })
		})
		b.Run(of.name+"/read", func(b *testing.B) {
			_, read := of.open(b, benchFile(b, benchRows))
			measured(b, func(i int) error { return read(i * 7919 % benchRows) })
		})
	}
}

func measured(b *testing.B, do func(i int) error) {
	b.ReportAllocs()
	before, i := cpuTime(b), 0
	for b.Loop() {
		if err := do(i); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric((cpuTime(b)-before)*1e6/float64(b.N), "cpu-us/op")
}

func cpuTime(b *testing.B) (seconds float64) {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}

func benchFile(b *testing.B, rows int) string {
	path := b.TempDir() + "/tenant.db"
	if err := Create(path, testSchema, testControl, 1); err != nil {
		b.Fatal(err)
	}
	write, _ := viaConn(b, path)
	for i := range (rows + benchBatch - 1) / benchBatch * benchBatch { // whole transactions
		if err := write(i); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

func benchBody(i int) string { return fmt.Sprint("note ", i*7919%1_000_003) }

func viaConn(b *testing.B, path string) (write, read func(i int) error) {
	f, err := Open(path, testSchema)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	c, extra := f.w, make([]byte, 32)
	return func(i int) error {
			if i%benchBatch == 0 {
				if err := c.Query("BEGIN IMMEDIATE", nil); err != nil {
					return err
				}
			}
			err := c.Query(benchInsert, nil, i, benchBody(i), extra)
			if err == nil && i%benchBatch == benchBatch-1 {
				err = c.Query("COMMIT", nil)
			}
			return err
		}, func(i int) error {
			_, err := c.One(benchSelect, func(r *Row) error { _, _ = r.ColumnText(0), Bytes(r, 1); return nil }, i)
			return err
		}
}

func viaSQL(b *testing.B, path string) (write, read func(i int) error) {
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(normal)")
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	c, err := db.Conn(ctx)
	if err != nil {
		b.Fatal(err)
	}
	prepare := func(query string) *sql.Stmt {
		s, err := c.PrepareContext(ctx, query)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	insert, sel := prepare(benchInsert), prepare(benchSelect)
	b.Cleanup(func() {
		if err := errors.Join(insert.Close(), sel.Close(), c.Close(), db.Close()); err != nil {
			b.Error(err)
		}
	})
	var tx *sql.Tx
	extra := make([]byte, 32)
	return func(i int) (err error) {
			if i%benchBatch == 0 {
				if tx, err = c.BeginTx(ctx, nil); err != nil {
					return err
				}
			}
			//nolint:sqlclosecheck // the transaction closes its statements
			if _, err = tx.Stmt(insert).Exec(i, benchBody(i), extra); err == nil && i%benchBatch == benchBatch-1 {
				err = tx.Commit()
			}
			return err
		}, func(i int) error {
			var body string
			var extra []byte
			return sel.QueryRow(i).Scan(&body, &extra)
		}
}

func viaDriver(b *testing.B, path string) (write, read func(i int) error) {
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(normal)")
	if err != nil {
		b.Fatal(err)
	}
	opened, err := db.Driver().Open(path + "?_pragma=synchronous(normal)")
	if err != nil {
		b.Fatal(err)
	}
	prepare := func(query string) sqldriver.Stmt {
		s, err := opened.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	insert, sel := prepare(benchInsert).(sqldriver.StmtExecContext), prepare(benchSelect).(sqldriver.StmtQueryContext)
	b.Cleanup(func() {
		if err := errors.Join(opened.Close(), db.Close()); err != nil {
			b.Error(err)
		}
	})
	var tx sqldriver.Tx
	ctx, extra := context.Background(), make([]byte, 32)
	row := make([]sqldriver.Value, 2)
	return func(i int) (err error) {
			if i%benchBatch == 0 {
				if tx, err = opened.(sqldriver.ConnBeginTx).BeginTx(ctx, sqldriver.TxOptions{}); err != nil {
					return err
				}
			}
			_, err = insert.ExecContext(ctx, []sqldriver.NamedValue{
				{Ordinal: 1, Value: int64(i)}, {Ordinal: 2, Value: benchBody(i)}, {Ordinal: 3, Value: extra},
			})
			if err == nil && i%benchBatch == benchBatch-1 {
				err = tx.Commit()
			}
			return err
		}, func(i int) error {
			rows, err := sel.QueryContext(ctx, []sqldriver.NamedValue{{Ordinal: 1, Value: int64(i)}})
			if err != nil {
				return err
			}
			err = rows.Next(row)
			if errors.Is(err, io.EOF) {
				err = errors.New("no row")
			}
			return errors.Join(err, rows.Close())
		}
}
