package raftfsm

import (
	"bytes"
	"errors"

	"celld/store"
	"celld/store/fault"
)

// lookUp returns the stored result of a key, nil if there is none, or
// ErrKeyReused if the key belongs to another request.
func lookUp(c *store.Conn, tenantID string, k *Key) ([]byte, error) {
	var hash, stored []byte
	found, err := c.One("SELECT payload_hash, result FROM idempotency WHERE tenant_id = ? AND actor = ? AND operation = ? AND key = ?",
		func(r *store.Row) error {
			hash, stored = store.Bytes(r, 0), store.Bytes(r, 1)
			return nil
		}, tenantID, k.Actor, k.Operation, k.Key)
	switch {
	case err != nil || !found:
		return nil, err
	case !bytes.Equal(hash, k.Hash[:]):
		return nil, ErrKeyReused
	}
	return stored, nil
}

// record stores the result of a key's one effect.
func record(tx *store.Tx, tenantID string, k *Key, out []byte) error {
	return tx.Query("INSERT INTO idempotency (tenant_id, actor, operation, key, payload_hash, result, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		nil, tenantID, k.Actor, k.Operation, k.Key, k.Hash[:], out, tx.Now)
}

// refusalOf returns err's refusal, or nil if err is none: a fault of any kind but
// Internal.
func refusalOf(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return f
	}
	return nil
}
