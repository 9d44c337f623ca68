package raftfsm

import (
	"bytes"
	"crypto/rand"
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

// sent is a snapshot on its way to a follower. Its copy of the group's own file
// lies in a folder that goes with it.
type sent struct {
	io.Reader
	size int64
	dir  string
	file *os.File
}

// Close implements io.Closer.
func (s *sent) Close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// toSend makes what a follower is sent in place of the snapshot at index: the
// states of all files and the group's own file, of one moment between two
// batches, so that what the file names is listed. Both may be further than index;
// entries that the files hold already are skipped when they come again.
func (s *snapshots) toSend(index uint64) (_ *sent, err error) {
	dir, err := os.MkdirTemp(s.dir, sentPrefix)
	if err != nil {
		return nil, err
	}
	out := &sent{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close())
		}
	}()
	m := &manifest{Version: manifestVersion, Kind: kindSent, Group: s.fsm.group, ID: rand.Text(), Index: index}
	own := filepath.Join(dir, "own.db")
	if m.Files, err = s.listAndCopy(own); err != nil {
		return nil, err
	}
	return out, out.assemble(m, own)
}

// listAndCopy lists the files and copies the group's own. Apply waits only while
// they are listed and the state is pinned.
func (s *snapshots) listAndCopy(to string) ([]store.FileState, error) {
	files, pin, release, err := s.listAndPin()
	if err != nil {
		return nil, err
	}
	defer release()
	return files, errors.Join(pin.CopyTo(to), pin.Close())
}

// listAndPin asks for the group's own file with fsm.mu held, not before: Restore
// holds it while it waits for that file's users.
func (s *snapshots) listAndPin() ([]store.FileState, *store.Pin, func(), error) {
	s.fsm.mu.Lock()
	defer s.fsm.mu.Unlock()
	files, err := s.space.Files()
	if err != nil {
		return nil, nil, nil, err
	}
	i := slices.IndexFunc(files, func(f store.FileState) bool { return f.Target == "" })
	if i < 0 {
		return nil, nil, nil, errors.New("the space lists no file of the group's own")
	}
	files[0], files[i] = files[i], files[0]
	own, release, err := s.space.Acquire("")
	if err != nil {
		return nil, nil, nil, err
	}
	pin, err := own.Pin()
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	return files, pin, release, nil
}

func (s *sent) assemble(m *manifest, own string) (err error) {
	var head bytes.Buffer
	if err := writeManifest(&head, m); err != nil {
		return err
	}
	if s.file, err = os.Open(own); err != nil { // a copy, which SQLite does not have open
		return err
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	head.Write(binary.BigEndian.AppendUint64(nil, uint64(info.Size())))
	s.size = int64(head.Len()) + info.Size() + sha256.Size
	s.Reader = io.MultiReader(&head, newSummed(io.LimitReader(s.file, info.Size())))
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

// install has the space install what a leader sent. It is idempotent: whatever a
// crash interrupts, doing all of it again is right.
func install(r io.Reader, group, dir string, space Space) (*manifest, error) {
	m, err := readManifest(r)
	if err != nil {
		return nil, err
	}
	if m.Kind != kindSent || m.Group != group {
		return nil, fmt.Errorf("not a snapshot that was sent within the group %q", group)
	}
	staging := filepath.Join(dir, "install")
	if err := os.RemoveAll(staging); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return nil, err
	}
	s := installation(m)
	s.Own = filepath.Join(staging, "own.db")
	if err := stage(r, s.Own); err != nil {
		return nil, fmt.Errorf("stage the group's own file: %w", err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return nil, errors.New("the snapshot does not end where it should")
	}
	if err := syncDirs(staging, 2); err != nil {
		return nil, err
	}
	if err := space.Install(s); err != nil {
		return nil, err
	}
	whole, err := space.Installed(s)
	if err == nil && !whole {
		err = errors.New("after the installation the group's own file is still behind")
	}
	if err != nil {
		return nil, err
	}
	return m, os.RemoveAll(staging)
}

func installation(m *manifest) Installation {
	return Installation{ID: m.ID, Index: m.Index, Files: m.Files}
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
