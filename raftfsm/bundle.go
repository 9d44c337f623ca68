package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"celld/store"
)

// A snapshot is, in this order:
//
//	8 bytes   "celldsn1"
//	4 bytes   length of the manifest, big endian
//	          the manifest, encoded by Encode
//
// and in a bundle then for each file of the manifest, in its order:
//
//	8 bytes   length of the file, big endian
//	          the file
//	32 bytes  SHA-256 of the file
//
// Nothing follows.
const (
	snapshotMagic    = "celldsn1"
	manifestVersion  = 1
	maxManifestBytes = 64 << 20
)

const (
	kindManifest uint8 = iota + 1
	kindBundle
)

type manifest struct {
	_       struct{} `cbor:",toarray"`
	Version uint8
	Kind    uint8
	Group   string
	Index   uint64 // everything up to here is in the files
	Files   []store.FileState
}

func writeManifest(w io.Writer, m *manifest) error {
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
	body, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, err
	}
	m := new(manifest)
	if err := Decode(body, m); err != nil {
		return nil, fmt.Errorf("undecodable manifest: %w", err)
	}
	if m.Version != manifestVersion || (m.Kind != kindManifest && m.Kind != kindBundle) {
		return nil, fmt.Errorf("snapshot of version %d, kind %d; this program reads version %d", m.Version, m.Kind, manifestVersion)
	}
	return m, nil
}

// bundle is a snapshot on its way to a follower. Its copies of the files lie in a
// folder that goes with it.
type bundle struct {
	io.Reader
	size int64
	dir  string
	open []*os.File
}

// Close implements io.Closer.
func (b *bundle) Close() error {
	var err error
	for _, f := range b.open {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// bundle copies every file, the group's own at the very index at which the files
// are listed: a follower that installs it must not find a target in the group's
// file that it was not sent. Files are sent as they are now; what they hold
// beyond the snapshot's index is skipped when the follower applies it again.
func (s *snapshots) bundle(index uint64, taken *manifest) (_ *bundle, err error) {
	dir, err := os.MkdirTemp(s.dir, bundlePrefix)
	if err != nil {
		return nil, err
	}
	b := &bundle{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	m := &manifest{Version: manifestVersion, Kind: kindBundle, Group: taken.Group, Index: index}
	if m.Files, err = s.listAndCopyOwn(b.path(0)); err != nil {
		return nil, err
	}
	for i, f := range m.Files[1:] {
		if err := s.copyFile(f.Target, b.path(i+1)); err != nil {
			return nil, err
		}
	}
	return b, b.assemble(m)
}

func (b *bundle) path(i int) string { return filepath.Join(b.dir, fmt.Sprintf("%d.db", i)) }

// listAndCopyOwn lists the files, the group's own first, and copies that one,
// between two batches.
func (s *snapshots) listAndCopyOwn(to string) ([]store.FileState, error) {
	s.fsm.mu.Lock()
	defer s.fsm.mu.Unlock()
	files, err := s.space.Files()
	if err != nil {
		return nil, err
	}
	own := slices.IndexFunc(files, func(f store.FileState) bool { return f.Target == "" })
	if own < 0 {
		return nil, errors.New("the space lists no file of the group's own")
	}
	files[0], files[own] = files[own], files[0]
	return files, s.copyFile("", to)
}

func (s *snapshots) copyFile(target, to string) error {
	file, release, err := s.space.Acquire(target)
	if err != nil {
		return err
	}
	defer release()
	return file.CopyTo(to)
}

func (b *bundle) assemble(m *manifest) error {
	var head bytes.Buffer
	if err := writeManifest(&head, m); err != nil {
		return err
	}
	b.size = int64(head.Len())
	parts := []io.Reader{&head}
	for i := range m.Files {
		f, err := os.Open(b.path(i)) // a copy, which SQLite does not have open
		if err != nil {
			return err
		}
		b.open = append(b.open, f)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		parts = append(parts,
			bytes.NewReader(binary.BigEndian.AppendUint64(nil, uint64(info.Size()))),
			newSummed(io.LimitReader(f, info.Size())))
		b.size += 8 + info.Size() + sha256.Size
	}
	b.Reader = io.MultiReader(parts...)
	return nil
}

// summed reads what r holds and then its SHA-256.
type summed struct {
	r   io.Reader
	sum hash.Hash
	end *bytes.Reader
}

func newSummed(r io.Reader) *summed {
	sum := sha256.New()
	return &summed{r: io.TeeReader(r, sum), sum: sum}
}

func (s *summed) Read(p []byte) (int, error) {
	if s.end == nil {
		n, err := s.r.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		s.end = bytes.NewReader(s.sum.Sum(nil))
		if n > 0 {
			return n, nil
		}
	}
	return s.end.Read(p)
}

// install stages the files of a bundle, checks them and has the space put them
// in place. It returns the index that the files have reached at the least.
func install(r io.Reader, group, dir string, space Space) (uint64, error) {
	m, err := readManifest(r)
	if err != nil {
		return 0, err
	}
	if m.Kind != kindBundle || m.Group != group {
		return 0, fmt.Errorf("not a bundle of the group %q", group)
	}
	staging := filepath.Join(dir, "install")
	if err := os.RemoveAll(staging); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return 0, err
	}
	staged := make([]Staged, len(m.Files))
	for i, state := range m.Files {
		staged[i] = Staged{FileState: state, Path: filepath.Join(staging, fmt.Sprintf("%d.db", i))}
		if err := stage(r, staged[i].Path); err != nil {
			return 0, fmt.Errorf("stage the file of %q: %w", state.Target, err)
		}
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return 0, errors.New("the bundle does not end where it should")
	}
	if err := syncDirs(staging, 2); err != nil {
		return 0, err
	}
	slices.Reverse(staged) // the group's own file, sent first, is placed last
	if err := space.Install(staged); err != nil {
		return 0, err
	}
	behind, err := firstBehind(space, m)
	if err != nil {
		return 0, err
	}
	if behind != nil {
		return 0, fmt.Errorf("after the installation the file of %q is still missing or behind", behind.Target)
	}
	return m.Index, os.RemoveAll(staging)
}

func stage(r io.Reader, path string) error {
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), r, int64(binary.BigEndian.Uint64(size[:])))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	var want [sha256.Size]byte
	if _, err := io.ReadFull(r, want[:]); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want[:]) {
		return errors.New("its bytes do not match their checksum")
	}
	return nil
}
