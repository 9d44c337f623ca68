package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"strings"

	"zombiezen.com/go/sqlite"
)

// Digest is the hash of a file's whole content at one moment, with the control
// row of that moment: every table in order of name, its rows in order of primary
// key. Two files with equal digests hold equal rows. The applied index is left
// out, because it counts in one cell's log; so are tables named local_*, which
// hold what differs between replicas by design.
//
// It reads from a pin and gives its slot away after each piece, so it may take
// as long as it takes.
func (f *File) Digest(ctx context.Context) (sum [sha256.Size]byte, at Control, err error) {
	p, err := f.Pin()
	if err != nil {
		return sum, at, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	sum, err = p.Digest(ctx)
	return sum, p.Control(), err
}

// Digest is File.Digest of the pinned state.
func (p *Pin) Digest(ctx context.Context) (sum [sha256.Size]byte, err error) {
	sum, _, err = p.DigestPaced(ctx, nil)
	return sum, err
}

// DigestPaced is Digest at somebody's pace, with the number of rows: pace is
// called after each piece, with what was read so far and no slot held, and may
// wait. It must not outlast ctx. nil is no wait.
func (p *Pin) DigestPaced(ctx context.Context, pace func(rows, bytes int64)) (sum [sha256.Size]byte, rows int64, err error) {
	if pace == nil {
		pace = func(int64, int64) {}
	}
	h := pacedHash{Hash: sha256.New(), pin: p, pace: pace}
	err = p.Read(ctx.Done(), func(c *Conn) error {
		var tables []string
		err := c.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
			AND name NOT LIKE 'local\_%' ESCAPE '\' ORDER BY name`, func(r *Row) error {
			tables = append(tables, r.ColumnText(0))
			return nil
		})
		for _, table := range tables {
			if err == nil {
				err = digestTable(c, &h, table)
			}
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return sum, h.rows, fmt.Errorf("digest of %s: %w", p.file.path, err)
	}
	pace(h.rows, h.bytes)
	return [sha256.Size]byte(h.Sum(nil)), h.rows, nil
}

// digestPiece is how many bytes are hashed before the slot is given away.
const digestPiece = 256 << 10

// pacedHash gives the pin's slot away after each piece that it has hashed.
type pacedHash struct {
	hash.Hash
	pin  *Pin
	pace func(rows, bytes int64)

	rows, bytes int64
	told        int64 // bytes when pace was last called
}

// Write implements io.Writer.
func (h *pacedHash) Write(b []byte) (int, error) {
	if h.bytes += int64(len(b)); h.bytes-h.told >= digestPiece {
		h.told = h.bytes
		h.pin.giveWay(func() { h.pace(h.rows, h.bytes) })
	}
	return h.Hash.Write(b)
}

func digestTable(c *Conn, h *pacedHash, table string) error {
	var columns, key []string
	err := c.Query("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", func(r *Row) error {
		if r.ColumnText(0) != "applied_index" {
			columns = append(columns, quote(r.ColumnText(0)))
		}
		return nil
	}, table)
	if err == nil {
		err = c.Query("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", func(r *Row) error {
			key = append(key, quote(r.ColumnText(0)))
			return nil
		}, table)
	}
	if err != nil {
		return err
	}
	if len(key) == 0 {
		return fmt.Errorf("table %s has no primary key to order it by", table)
	}
	fmt.Fprintf(h, "table %d:%s %d columns\n", len(table), table, len(columns))
	var n [9]byte
	put := func(tag byte, v uint64) {
		n[0] = tag
		binary.BigEndian.PutUint64(n[1:], v)
		_, _ = h.Write(n[:]) // a hash takes everything
	}
	return c.Query("SELECT "+strings.Join(columns, ", ")+" FROM "+quote(table)+" ORDER BY "+strings.Join(key, ", "), func(r *Row) error {
		h.rows++
		for i := range columns {
			switch r.ColumnType(i) {
			case sqlite.TypeNull:
				put('n', 0)
			case sqlite.TypeInteger:
				put('i', uint64(r.ColumnInt64(i)))
			case sqlite.TypeFloat:
				put('f', math.Float64bits(r.ColumnFloat(i)))
			case sqlite.TypeText:
				put('t', uint64(r.ColumnLen(i)))
				_, _ = h.Write([]byte(r.ColumnText(i)))
			case sqlite.TypeBlob:
				b := Bytes(r, i)
				put('b', uint64(len(b)))
				_, _ = h.Write(b)
			}
		}
		return nil
	})
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
