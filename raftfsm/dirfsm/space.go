package dirfsm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
)

// Space is directory.db: the one file of the directory's group, with what readers
// need to know whether something that they remember is still right.
type Space struct {
	path string

	// mu is held for reading by whoever uses the file and for writing while a
	// snapshot's file takes its place.
	mu   sync.RWMutex
	file *store.File

	// touched is the sequence up to which remembered rows may be wrong.
	touched atomic.Uint64
}

var _ raftfsm.Space = (*Space)(nil)

// OpenSpace opens directory.db in dir and creates it where there is none.
func OpenSpace(dir string) (*Space, error) {
	s := &Space{path: filepath.Join(dir, "directory.db")}
	// Every replica creates its own file; all are equal, the time included.
	if err := store.Create(s.path, Schema(), store.Control{CellKey: "directory"}, 0); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *Space) open() error {
	f, err := store.Open(s.path, Schema())
	if err != nil {
		return err
	}
	s.file = f
	return nil
}

// Acquire implements raftfsm.Space.
func (s *Space) Acquire(target string) (*store.File, func(), error) {
	if target != "" {
		return nil, nil, fault.New(fault.Impossible, "no-such-target", "the directory has no file of that name")
	}
	s.mu.RLock()
	if s.file == nil {
		s.mu.RUnlock()
		return nil, nil, os.ErrClosed
	}
	return s.file, s.mu.RUnlock, nil
}

// Keep is Acquire for whoever uses f already. Who waits for the file is installing a
// snapshot, which is not done while something is applied, or closing it.
func (s *Space) Keep(target string, f *store.File) (release func(), ok bool) {
	kept, release, err := s.Acquire(target)
	if err == nil && kept != f {
		release()
	}
	return release, err == nil && kept == f
}

// Files implements raftfsm.Space.
func (s *Space) Files() ([]store.FileState, error) {
	f, release, err := s.Acquire("")
	if err != nil {
		return nil, err
	}
	defer release()
	return []store.FileState{{Index: f.Control().Applied}}, nil
}

// Sync implements raftfsm.Space.
func (s *Space) Sync() error {
	f, release, err := s.Acquire("")
	if err != nil {
		return err
	}
	defer release()
	return f.Sync()
}

// Damaged implements raftfsm.Space: there are no targets.
func (s *Space) Damaged(target string, cause error) error {
	return fmt.Errorf("the directory has no file named %q: %w", target, cause)
}

// Absent implements raftfsm.Space.
func (s *Space) Absent() int { return 0 }

// Recover implements raftfsm.Space. Installed has looked at the one file.
func (s *Space) Recover([]store.FileState) error { return nil }

// Installed implements raftfsm.Space. There is one file, so that it is as far as
// the snapshot says is all.
func (s *Space) Installed(in raftfsm.Installation) (bool, error) {
	f, release, err := s.Acquire("")
	if err != nil {
		return false, err
	}
	defer release()
	return f.Control().Applied >= in.OwnIndex(), nil
}

// Install implements raftfsm.Space.
func (s *Space) Install(in raftfsm.Installation) error {
	if len(in.Files) != 1 {
		return fmt.Errorf("a snapshot of the directory lists %d files; one was expected", len(in.Files))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		if s.file.Control().Applied >= in.OwnIndex() {
			// All that is kept of the log comes after the snapshot; so what the log
			// held before must be durable here.
			return s.file.Sync()
		}
		if err := s.file.Close(); err != nil {
			return err
		}
		s.file = nil
	}
	if err := in.Place(s.path); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	s.Touch(s.file.Control().Sequence)
	return nil
}

// Touch is the function for Table: what was remembered before sequence may be
// wrong.
func (s *Space) Touch(sequence uint64) {
	for {
		have := s.touched.Load()
		if have >= sequence || s.touched.CompareAndSwap(have, sequence) {
			return
		}
	}
}

// Holds reports whether what was read after the file had the given sequence is
// still right.
func (s *Space) Holds(sequence uint64) bool { return sequence >= s.touched.Load() }

// View runs fn on the file as it is and returns the file's sequence from before.
// What fn reads may be kept for as long as Holds(sequence): the file shows a
// sequence before its commit, but its View waits for a commit under way, so fn
// sees everything up to the sequence.
func (s *Space) View(fn func(*store.Conn) error) (sequence uint64, err error) {
	f, release, err := s.Acquire("")
	if err != nil {
		return 0, err
	}
	defer release()
	sequence = f.Control().Sequence
	return sequence, f.View(fn)
}

// Scan runs fn in one read transaction.
func (s *Space) Scan(ctx context.Context, fn func(*store.Conn) error) error {
	f, release, err := s.Acquire("")
	if err != nil {
		return err
	}
	defer release()
	return f.Scan(ctx, fn)
}

// LastTime is the latest time that a command was given, in unix microseconds. It
// never goes back.
func (s *Space) LastTime() int64 {
	f, release, err := s.Acquire("")
	if err != nil {
		return 0
	}
	defer release()
	return f.Control().LastTime
}

// Checkpoint keeps the write-ahead file short.
func (s *Space) Checkpoint() error {
	f, release, err := s.Acquire("")
	if err != nil {
		return err
	}
	defer release()
	return f.Checkpoint()
}

// Digest is over the rows of every table, and tells at which control row.
func (s *Space) Digest(ctx context.Context) (sum [32]byte, at store.Control, err error) {
	f, release, err := s.Acquire("")
	if err != nil {
		return sum, at, err
	}
	defer release()
	return f.Digest(ctx)
}

// Close closes the file when its users are done.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
