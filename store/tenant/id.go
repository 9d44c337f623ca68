package tenant

import (
	"encoding/base32"
	"io"
	"strings"

	"celld/store/fault"
)

// ID is a tenant's public id, like T7: [A-Za-z][A-Za-z0-9-]{0,31}, unique
// ignoring case (design section 7).
type ID string

// UserID is a user's id; same syntax as ID.
type UserID string

// CellName names a cell, like C2; same syntax as ID.
type CellName string

// CellKey is a cell's random key, which tells it from any other cell of the
// same name, past or present.
type CellKey string

// UID is a tenant's internal id: 26 characters of lower-case base32, 128 bits of
// randomness, never used again after the tenant's deletion.
type UID string

// MoveID is the random id of one move of a tenant from a cell to another: 26
// characters, made and formed like a UID. Every step of the move, in whichever log
// it is, carries it.
type MoveID string

// Epoch is the version of a tenant's ownership. It only grows.
type Epoch uint64

// Revision is the version of a membership. It only grows within a tenant.
type Revision uint64

const maxID = 32

func validID(s string) bool {
	if len(s) == 0 || len(s) > maxID || !letter(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !letter(c) && c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// ValidID reports whether s has the syntax of a public id.
func ValidID(s string) bool { return validID(s) }

// ParseID checks the syntax of a public tenant id.
func ParseID(s string) (ID, error) {
	if !validID(s) {
		return "", fault.New(fault.Invalid, "invalid-id", "a tenant id is a letter and up to 31 letters, digits or hyphens")
	}
	return ID(s), nil
}

// Fold is the form under which ids are unique.
func (id ID) Fold() string { return strings.ToLower(string(id)) }

// Fold is the form under which user ids are unique.
func (id UserID) Fold() string { return strings.ToLower(string(id)) }

// randomText writes the random ids: 16 bytes are 26 characters.
var randomText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const (
	randomBytes = 16
	randomChars = 26
)

// NewUID makes a uid of 16 bytes read from random.
func NewUID(random io.Reader) (UID, error) {
	id, err := newRandom(random)
	return UID(id), err
}

// NewMoveID makes a move's id of 16 bytes read from random.
func NewMoveID(random io.Reader) (MoveID, error) {
	id, err := newRandom(random)
	return MoveID(id), err
}

func newRandom(random io.Reader) (string, error) {
	var b [randomBytes]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return randomText.EncodeToString(b[:]), nil
}

// Valid reports whether u has a uid's form; a uid is a folder's name on disk.
func (u UID) Valid() bool { return validRandom(string(u)) }

// Valid reports whether m has a move id's form; it is a part of a folder's name on
// disk.
func (m MoveID) Valid() bool { return validRandom(string(m)) }

func validRandom(id string) bool {
	if len(id) != randomChars {
		return false
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// ParseMoveID checks the form of a move's id.
func ParseMoveID(s string) (MoveID, error) {
	if !validRandom(s) {
		return "", fault.New(fault.Invalid, "invalid-move", "a move's id is %d characters of a to z and 2 to 7", randomChars)
	}
	return MoveID(s), nil
}
