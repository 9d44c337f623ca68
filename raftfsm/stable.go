package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// stableStore keeps the term and the vote, and whose they are, in a bbolt file
// of its own. It implements raft.StableStore.
//
// Raft persists a vote by two calls: the term, then the candidate. A crash
// between two transactions would leave the new term with an older candidate,
// and after a restart that candidate would be granted the vote without a look at
// its log. So the term waits in memory for the candidate and both are written in
// one transaction; if the candidate never comes the vote was never given. Raft
// calls from one goroutine.
type stableStore struct {
	db       *bbolt.DB
	voteTerm []byte // set, and not yet written
}

// The library's names for what it keeps; a test sees them used.
const (
	keyVoteTerm = "LastVoteTerm"
	keyVoteFor  = "LastVoteCand"
	keyTerm     = "CurrentTerm"
)

// keyMember holds whose store this is, keyFormat the version of the folder's
// format, one byte.
const (
	keyMember = "celld-member"
	keyFormat = "celld-format"
)

// folderFormat is the version that this program writes and reads.
const folderFormat = 1

// stableFile is the file's name in a member's folder, unfinishedStable while it is
// being made.
const (
	stableFile       = "stable.db"
	unfinishedStable = stableFile + ".new"
)

// bucket is the one bucket of the file.
const bucket = "stable"

// errNotFound has the text that the library compares with.
var errNotFound = errors.New("not found")

func boltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

// openStable opens a member's store. A new one is filled under another name and put
// in place when it says whose it is: there is none that does not.
func openStable(dir, group, id string) (*stableStore, error) {
	path := filepath.Join(dir, stableFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := newStable(dir, group, id); err != nil {
			return nil, err
		}
	}
	return openStableAt(path, group, id)
}

// newStable makes a store, durable when it returns.
func newStable(dir, group, id string) error {
	made := filepath.Join(dir, unfinishedStable)
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s, err := openStableAt(made, group, id)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Close(), os.Rename(made, filepath.Join(dir, stableFile))); err != nil {
		return err
	}
	return syncDirs(dir, 1)
}

func openStableAt(path, group, id string) (*stableStore, error) {
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = errors.New("another process has it open")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &stableStore{db: db}
	member := group + "\n" + id
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		switch format := b.Get([]byte(keyFormat)); {
		case len(format) == 0:
			if err := b.Put([]byte(keyFormat), []byte{folderFormat}); err != nil {
				return err
			}
		case format[0] > folderFormat:
			return fmt.Errorf("%s was written by a newer celld (format %d, this program knows %d): run the newer program", path, format[0], folderFormat)
		}
		switch had := b.Get([]byte(keyMember)); {
		case had == nil:
			return b.Put([]byte(keyMember), []byte(member))
		case string(had) != member:
			return fmt.Errorf("%s belongs to another member (%q); a member's id never changes", path, had)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, val []byte) error {
	term := s.voteTerm
	if string(key) == keyVoteFor {
		s.voteTerm = nil
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if string(key) == keyVoteFor && term != nil {
			if err := b.Put([]byte(keyVoteTerm), term); err != nil {
				return err
			}
		}
		return b.Put(key, val)
	})
}

// Get implements raft.StableStore.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	var val []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket([]byte(bucket)).Get(key)
		if v == nil {
			return errNotFound
		}
		val = append([]byte{}, v...)
		return nil
	})
	return val, err
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	b := binary.BigEndian.AppendUint64(nil, val)
	if string(key) == keyVoteTerm {
		s.voteTerm = b
		return nil
	}
	return s.Set(key, b)
}

// GetUint64 implements raft.StableStore.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	val, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(val) != 8 {
		return 0, fmt.Errorf("stable value %q has %d bytes", key, len(val))
	}
	return binary.BigEndian.Uint64(val), nil
}

// Close closes the file.
func (s *stableStore) Close() error { return s.db.Close() }

// raftDirEmpty reports whether a member never ran in dir. One that died while it made
// its first file never ran.
func raftDirEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == unfinishedStable })
	return len(entries) == 0, err
}
