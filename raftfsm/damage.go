package raftfsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// wayOut ends every error about a folder that this member cannot go on with: a
// member may come back only with all that it has promised to its group.
func (c *Config) wayOut() string {
	if c.Replace == "" {
		return "do not delete it and start again under the same id: put back the folder as it was last, or leave this member stopped"
	}
	return "do not delete it and start again under the same id. " + c.Replace
}

// damaged is an error about a file of a member's folder, with what to do.
func (c *Config) damaged(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is open in another process: stop that one first, or give this one a folder of its own (--data)", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: this process's user must own the folder and may not read or write this file; nothing is known to be damaged", err)
	}
	return fmt.Errorf("%s is damaged: %w; %s", path, err, c.wayOut())
}

// stretch is the end of a log that has no gap: its first and its last entry, 0 for
// none, and the entry before the gap that it follows, 0 for no gap. Raft leaves a
// gap itself where it has installed a snapshot over what it had.
type stretch struct{ first, last, before uint64 }

// examine reads the log and the votes before bbolt and Raft do, which end the
// process in a panic where a page is not what it should be.
func examine(c *Config) (s stretch, err error) {
	stable, log := filepath.Join(c.Dir, stableFile), filepath.Join(c.Dir, logFile)
	stableSize, logSize := sizeOf(stable), sizeOf(log)
	if logSize > 0 && stableSize == 0 {
		return s, c.damaged(stable, errors.New("it is missing or empty, though there is a log: whom this member has voted for is lost"))
	}
	if stableSize > 0 {
		if err := walk(stable, nil); err != nil {
			return s, c.damaged(stable, err)
		}
	}
	if logSize == 0 {
		return s, nil // keptLog and found tell whether there should be one
	}
	err = walk(log, func(bucket, key []byte) error {
		if string(bucket) != "logs" {
			return nil
		}
		if len(key) != 8 {
			return fmt.Errorf("it has an entry with the key %x", key)
		}
		index := binary.BigEndian.Uint64(key)
		if s.last == 0 || index != s.last+1 {
			s.first, s.before = index, s.last
		}
		s.last = index
		return nil
	})
	if err != nil {
		return s, c.damaged(log, err)
	}
	return s, nil
}

// covered refuses a log that lacks entries which no snapshot tells of either.
func (c *Config) covered(s stretch, taken uint64) error {
	if s.first <= taken+1 {
		return nil
	}
	log := filepath.Join(c.Dir, logFile)
	if s.before > taken {
		return fmt.Errorf("%s is damaged: it has a gap from entry %d to entry %d; %s", log, s.before+1, s.first-1, c.wayOut())
	}
	return fmt.Errorf("%s begins with entry %d, and the newest snapshot that can be read reaches to %d: what lies between is missing, because a snapshot in %s is lost or damaged; %s",
		log, s.first, taken, filepath.Join(c.Dir, "snapshots"), c.wayOut())
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// walk reads every key of a bbolt file, in order, without changing it. What bbolt
// panics at, and a page behind the end of a file that was cut short, becomes an
// error: both meet this goroutine, as nothing else runs yet.
func walk(path string, key func(bucket, key []byte) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a page of it cannot be read: %v", p)
		}
	}()
	options := boltOptions()
	options.ReadOnly = true
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // after the rollback: it waits for transactions
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walkBucket(name, b, key) })
}

func walkBucket(name []byte, b *bbolt.Bucket, key func(bucket, key []byte) error) error {
	var before []byte
	cursor := b.Cursor()
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		if before != nil && bytes.Compare(before, k) >= 0 {
			return fmt.Errorf("its keys are not in order: %x comes after %x", k, before)
		}
		before = append(before[:0], k...)
		if key == nil {
			continue
		}
		if err := key(name, k); err != nil {
			return err
		}
	}
	return nil
}
