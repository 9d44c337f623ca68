package raftfsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"

	"celld/store"
)

// A snapshot is, in this order:
//
//	8 bytes   "celldsn1"
//	4 bytes   length of the manifest, big endian
//	          the manifest, encoded by Encode
//
// and in one that a leader sends then
//
//	8 bytes   length of the group's own file, big endian
//	          the file
//	32 bytes  SHA-256 of the file
//
// Nothing follows.
const (
	snapshotMagic    = "celldsn1"
	manifestVersion  = 1
	maxManifestBytes = 256 << 20
	maxFiles         = 1 << 20
)

const (
	kindLocal uint8 = iota + 1 // of this member's own files
	kindSent                   // of the sender's files, with the group's own file
)

type manifest struct {
	_       struct{} `cbor:",toarray"`
	Version uint8
	Kind    uint8
	Group   string
	ID      string // of this very sending; "" for a local one
	Index   uint64 // everything up to here is in the files
	Files   []store.FileState
}

// manifestMode is as strict as Decode, and lets a group have more targets than
// an entry may have commands.
func manifestMode() (cbor.DecMode, error) {
	return cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxArrayElements: maxFiles, MaxNestedLevels: 8, IndefLength: cbor.IndefLengthForbidden,
	}.DecMode()
}

func writeManifest(w io.Writer, m *manifest) error {
	if len(m.Files) > maxFiles {
		return fmt.Errorf("a group may have %d files, this one has %d", maxFiles, len(m.Files))
	}
	body, err := Encode(m)
	if err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32([]byte(snapshotMagic), uint32(len(body)))
	_, err = w.Write(append(head, body...))
	return err
}

func readManifest(r io.Reader) (*manifest, error) {
	head := make([]byte, len(snapshotMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("read a snapshot's head: %w", err)
	}
	size := binary.BigEndian.Uint32(head[len(snapshotMagic):])
	if string(head[:len(snapshotMagic)]) != snapshotMagic || size > maxManifestBytes {
		return nil, errors.New("not a snapshot of celld")
	}
	body := new(bytes.Buffer) // grows with what comes, whatever the length says
	if _, err := io.CopyN(body, r, int64(size)); err != nil {
		return nil, fmt.Errorf("read a snapshot's manifest: %w", err)
	}
	mode, err := manifestMode()
	if err != nil {
		return nil, err
	}
	m := new(manifest)
	if err := mode.Unmarshal(body.Bytes(), m); err != nil {
		return nil, fmt.Errorf("undecodable manifest: %w", err)
	}
	if m.Version != manifestVersion || (m.Kind != kindLocal && m.Kind != kindSent) {
		return nil, fmt.Errorf("snapshot of version %d, kind %d; this program reads version %d", m.Version, m.Kind, manifestVersion)
	}
	if len(m.Files) == 0 || m.Files[0].Target != "" {
		return nil, errors.New("the manifest does not begin with the group's own file")
	}
	return m, nil
}
