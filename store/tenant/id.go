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

var uidText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewUID makes a uid of 16 bytes read from random.
func NewUID(random io.Reader) (UID, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return UID(uidText.EncodeToString(b[:])), nil
}

// Valid reports whether u has a uid's form; a uid is a folder's name on disk.
func (u UID) Valid() bool {
	if len(u) != 26 {
		return false
	}
	for i := 0; i < len(u); i++ {
		if c := u[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
