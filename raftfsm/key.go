package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// KeyTable is the table that every file has for the keys of commands that had
// their effect.
const KeyTable = `
CREATE TABLE idempotency (
  tenant_id TEXT NOT NULL, sequence INTEGER NOT NULL, -- of the command that had the effect
  identity BLOB NOT NULL,                             -- Key.Identity
  payload_hash BLOB NOT NULL, result BLOB NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, sequence)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX idempotency_identity ON idempotency (tenant_id, identity);
`

// Identity is what a key is found by within its file: the first 16 bytes of a hash
// of actor, operation and key, each with its length before it. It is shorter than
// they are and compared at once.
func (k *Key) Identity() []byte {
	b := make([]byte, 0, 96)
	for _, part := range []string{k.Actor, k.Operation, k.Key} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return sum[:16]
}

// lookUp returns the stored result of a key, nil if there is none, or
// ErrKeyReused if the key belongs to another request.
func lookUp(c *store.Conn, t tenant.ID, k *Key) ([]byte, error) {
	var hash, stored []byte
	found, err := c.One("SELECT payload_hash, result FROM idempotency WHERE tenant_id = ? AND identity = ?",
		func(r *store.Row) error {
			hash, stored = store.Bytes(r, 0), store.Bytes(r, 1)
			return nil
		}, string(t), k.Identity())
	switch {
	case err != nil || !found:
		return nil, err
	case !bytes.Equal(hash, k.Hash[:]):
		return nil, ErrKeyReused
	}
	return stored, nil
}

// record stores the result of a key's one effect. A key that is there already is
// an error that store.IsUnique knows.
func record(tx *store.Tx, k *Key, out []byte) error {
	ctl := tx.Control()
	return tx.Query("INSERT INTO idempotency (tenant_id, sequence, identity, payload_hash, result, created_at) VALUES (?, ?, ?, ?, ?, ?)",
		nil, string(ctl.Tenant), ctl.Sequence+1, k.Identity(), k.Hash[:], out, tx.Now)
}

// takeBack undoes record.
func takeBack(tx *store.Tx) error {
	ctl := tx.Control()
	return tx.TakeBack("DELETE FROM idempotency WHERE tenant_id = ? AND sequence = ?", string(ctl.Tenant), ctl.Sequence+1)
}

// refusalOf returns err's refusal, or nil if err is none. A refusal is the same on
// every replica: a fault of any kind but Internal, and Unavailable, which speaks of
// this replica at this moment.
func refusalOf(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal && f.Kind != fault.Unavailable {
		return f
	}
	return nil
}
