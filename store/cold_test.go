package store

import (
	"fmt"
	"path/filepath"
	"testing"
)

// coldSchema is as large as a tenant's.
var coldSchema = &Schema{Kind: "tenant", Migrations: []string{`
CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE, extra BLOB) STRICT;
CREATE TABLE customer (owner TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, reference TEXT, email TEXT, version INTEGER NOT NULL, PRIMARY KEY (owner, id)) STRICT;
CREATE UNIQUE INDEX customer_reference ON customer (owner, reference) WHERE reference IS NOT NULL;
CREATE TABLE invoice (owner TEXT NOT NULL, id INTEGER NOT NULL, customer INTEGER NOT NULL, status TEXT NOT NULL, amount INTEGER NOT NULL, currency TEXT NOT NULL, reference TEXT,
  PRIMARY KEY (owner, id), FOREIGN KEY (owner, customer) REFERENCES customer (owner, id)) STRICT;
CREATE UNIQUE INDEX invoice_reference ON invoice (owner, reference) WHERE reference IS NOT NULL;
CREATE INDEX invoice_customer ON invoice (owner, customer, id);
CREATE INDEX invoice_status ON invoice (owner, status, id);
CREATE TABLE audit (owner TEXT NOT NULL, sequence INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL, object INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (owner, sequence)) STRICT;
CREATE VIEW outbox AS SELECT owner, sequence, at, event, object, version FROM audit;
CREATE TABLE operation (actor TEXT NOT NULL, operation TEXT NOT NULL, key TEXT NOT NULL, payload BLOB NOT NULL, answer BLOB, PRIMARY KEY (actor, operation, key)) STRICT;
`}}

// cold has many more files than are kept open, so that every Acquire opens one
// and closes another.
func cold(b *testing.B, do func(i int, f *File) error) {
	const files, kept = 64, 8
	dir := b.TempDir()
	paths := make([]string, files)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("u", i), "1-0", "tenant.db")
		if err := Create(paths[i], coldSchema, testControl, 1); err != nil {
			b.Fatal(err)
		}
	}
	h := testHandles(b, coldSchema, kept, nil)
	h.WriteBehind(commitNever, func(_ string, err error) { b.Error(err) })
	measured(b, func(i int) error {
		f, release, err := h.Acquire(fmt.Sprint(i%files), paths[i%files])
		if err != nil {
			return err
		}
		defer release()
		return do(i, f)
	})
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
}

const commitNever = 1 << 60 // except before a file is closed

// BenchmarkColdRead is one short read of a file that is not open.
func BenchmarkColdRead(b *testing.B) {
	cold(b, func(i int, f *File) error {
		return f.View(func(c *Conn) error {
			_, err := c.One(benchSelect, nil, i)
			return err
		})
	})
}

// BenchmarkColdApply is one insert into a file that is not open.
func BenchmarkColdApply(b *testing.B) {
	cold(b, func(i int, f *File) error { return insert(f, uint64(i+1), benchBody(i)+fmt.Sprint(" of ", i)) })
}
