package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store/fault"
)

// A cursor is base64url without padding of: version byte, 12 bytes of nonce,
// AES-256-GCM of the last row's id that the page looked at (8 bytes, big endian), tag. The binding, in
// which the version is, is the additional data. The key comes from the tenant's secret,
// which every replica has and which outlives restarts.
const (
	cursorVersion = 1
	cursorSize    = 1 + 12 + 8 + 16
	cursorInfo    = "celld list cursor v1"
	maxCursor     = (cursorSize*8 + 5) / 6 // characters
)

var errInvalidCursor = fault.New(fault.Invalid, "invalid-cursor", "the cursor is not one of this list; begin without one")

var cursorText = base64.RawURLEncoding.Strict()

// sealer seals and opens the cursors of one list: one tenant, route, set of
// filters and sort.
type sealer struct {
	aead    cipher.AEAD
	binding []byte
}

func newSealer(t cellfsm.Tenant, route string, filter any, sort string) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, t.Secret, nil, cursorInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("derive cursor key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cursor cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("cursor cipher: %w", err)
	}
	binding, err := raftfsm.Encode([]any{cursorVersion, string(t.UID), route, filter, sort})
	if err != nil {
		return nil, fmt.Errorf("bind cursor: %w", err)
	}
	return &sealer{aead, binding}, nil
}

func (s *sealer) seal(id int64) string {
	var plain [8]byte
	binary.BigEndian.PutUint64(plain[:], uint64(id))
	return cursorText.EncodeToString(s.aead.Seal([]byte{cursorVersion}, nil, plain[:], s.binding))
}

// plausibleCursor reports whether a text has a cursor's length and alphabet.
func plausibleCursor(text string) bool {
	if len(text) != maxCursor {
		return false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// open accepts exactly what seal made.
func (s *sealer) open(text string) (id int64, err error) {
	if !plausibleCursor(text) {
		return 0, errInvalidCursor
	}
	raw, err := cursorText.DecodeString(text)
	if err != nil || raw[0] != cursorVersion {
		return 0, errInvalidCursor
	}
	plain, err := s.aead.Open(nil, nil, raw[1:], s.binding)
	if err != nil {
		return 0, errInvalidCursor
	}
	return int64(binary.BigEndian.Uint64(plain)), nil
}
