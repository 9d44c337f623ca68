package directory

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"

	"celld/raftfsm/dirfsm"
)

// secretKind is the letter in a secret's text that says what it is for.
type secretKind byte

const (
	apiSecret     secretKind = 't'
	sessionSecret secretKind = 's'
	inviteSecret  secretKind = 'i'
)

// A secret's text is "celld_", its kind, "_", and 36 bytes in base64url: 256
// random bits and a CRC-32 of kind and bits. The checksum is no protection. It
// makes a mistyped or made-up secret cost no read of the database, and 36 bytes
// leave no spare bits in the last character, so that every changed character is
// noticed.
const (
	secretPrefix  = "celld_"
	secretBytes   = 32
	secretHead    = len(secretPrefix) + 2
	secretEncoded = (secretBytes + 4) / 3 * 4
	secretLen     = secretHead + secretEncoded
)

type secretHash = [sha256.Size]byte

func newSecret(random io.Reader, kind secretKind) (string, secretHash, error) {
	var raw [secretBytes + 4]byte
	if _, err := io.ReadFull(random, raw[:secretBytes]); err != nil {
		return "", secretHash{}, err
	}
	binary.BigEndian.PutUint32(raw[secretBytes:], checksum(kind, raw[:secretBytes]))
	text := secretPrefix + string(kind) + "_" + base64.RawURLEncoding.EncodeToString(raw[:])
	return text, sha256.Sum256([]byte(text)), nil
}

// parseSecret checks a secret's form and returns its kind and hash.
func parseSecret(text string) (secretKind, secretHash, bool) {
	if len(text) != secretLen || text[:len(secretPrefix)] != secretPrefix || text[secretHead-1] != '_' {
		return 0, secretHash{}, false
	}
	kind := secretKind(text[secretHead-2])
	var buf [secretLen]byte
	copy(buf[:], text)
	var raw [secretEncoded]byte
	// The decoder skips line breaks; then fewer bytes come out.
	n, err := base64.RawURLEncoding.Decode(raw[:], buf[secretHead:])
	if err != nil || n != secretBytes+4 {
		return 0, secretHash{}, false
	}
	if binary.BigEndian.Uint32(raw[secretBytes:]) != checksum(kind, raw[:secretBytes]) {
		return 0, secretHash{}, false
	}
	return kind, sha256.Sum256(buf[:]), true
}

func checksum(kind secretKind, raw []byte) uint32 {
	head := [1]byte{byte(kind)}
	return crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, raw)
}

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID makes a public id: prefix and 65 random bits.
func newID(random io.Reader, prefix string) (string, error) {
	var raw [9]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", err
	}
	return prefix + idText.EncodeToString(raw[:])[:13], nil
}

// mint makes a secret with a public id of its own.
func mint(random io.Reader, kind secretKind, prefix string) (string, dirfsm.Secret, error) {
	id, err := newID(random, prefix)
	if err != nil {
		return "", dirfsm.Secret{}, err
	}
	text, hash, err := newSecret(random, kind)
	return text, dirfsm.Secret{ID: id, Hash: hash[:]}, err
}
