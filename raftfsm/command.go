package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Number identifies a command for ever. Numbers are append-only and pinned by a
// golden file; a retired one keeps its slot.
type Number uint16

// formatVersion is the version of a log entry's encoding.
const formatVersion = 1

// Key is an idempotency identity: one effect for each (target, actor,
// operation, key). Hash is over what the caller asked for, so that a reuse of
// the key for something else is told from a retry.
type Key struct {
	_         struct{} `cbor:",toarray"`
	Actor     string
	Operation string
	Key       string
	Hash      [sha256.Size]byte
}

// Command is one change of one store, as it stands in the log.
type Command struct {
	_      struct{} `cbor:",toarray"`
	Number Number
	Target string // a tenant's uid; "" is the group's own store
	At     int64  // unix microseconds by the proposer's clock
	Epoch  uint64 // the tenant's epoch that the proposer was authorized for; 0 for the group's own store
	Actor  string // who asks, for audit rows
	Key    *Key   // nil where a repetition does no harm by itself
	Body   cbor.RawMessage
}

// NewCommand encodes body as a command. The caller fills in Epoch, Actor and
// Key; the proposer fills in At.
func NewCommand(n Number, target string, body any) (Command, error) {
	raw, err := Encode(body)
	if err != nil {
		return Command{}, err
	}
	return Command{Number: n, Target: target, Body: raw}, nil
}

var encMode = func() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // constant options
	}
	return m
}()

var decMode = func() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxArrayElements: 1 << 16, MaxNestedLevels: 16, IndefLength: cbor.IndefLengthForbidden,
	}.DecMode()
	if err != nil {
		panic(err) // constant options
	}
	return m
}()

// Encode is the one encoding of everything that is logged: CBOR, core
// deterministic, so that equal values have equal bytes and hashes.
func Encode(v any) ([]byte, error) { return encMode.Marshal(v) }

// Decode is Encode's inverse. It refuses unknown fields and trailing bytes.
func Decode(b []byte, into any) error { return decMode.Unmarshal(b, into) }

// HashOf is the payload hash for an idempotency key: over the encodings of
// parts, in order.
func HashOf(parts ...any) ([sha256.Size]byte, error) {
	var buf bytes.Buffer
	for _, p := range parts {
		b, err := Encode(p)
		if err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("encode payload for its hash: %w", err)
		}
		fmt.Fprintf(&buf, "%d:", len(b))
		buf.Write(b)
	}
	return sha256.Sum256(buf.Bytes()), nil
}
