package store

import (
	"errors"
	"os"
	"path/filepath"

	"celld/store/failpoint"
	"celld/store/room"
	"celld/store/stall"
)

// SyncFolders makes durable that the file at path is there.
func SyncFolders(path string) error { return syncPath(filepath.Dir(path)) }

// syncPath makes a closed file, or a folder, and the three folders above it
// durable.
func syncPath(path string) error {
	for i := 0; i < 4; i++ {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = f.Sync()
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
		path = filepath.Dir(path)
	}
	return nil
}

// Checkpoint moves what readers no longer need from the WAL into the file and is
// durable when it returns. All but what is committed meanwhile moves without a
// lock; the rest moves under the writer's, so that the next transaction finds
// nothing left in the WAL and begins it anew. Else the WAL of a file that is
// always being written would grow without end.
func (f *File) Checkpoint() error {
	f.wal.asked()
	if f.room.Level() == room.None {
		return nil // the file might have to grow
	}
	const passive = "PRAGMA wal_checkpoint(PASSIVE)"
	if err := f.maintain(passive); err != nil && !errors.Is(err, ErrDescriptors) {
		return err // without a reader all of it moves under the lock
	}
	failpoint.Here(failpoint.CheckpointBetween)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	f.enter()
	defer f.leave()
	if err := f.commit(); err != nil {
		return err
	}
	defer f.disk.Begin("a checkpoint", f.path, stall.Long)()
	return f.w.Query(passive, func(r *Row) error {
		f.wal.moved(r.ColumnInt(0) == 0 && r.ColumnInt(1) == r.ColumnInt(2))
		return nil
	})
}

// Sync makes everything committed so far durable.
func (f *File) Sync() error {
	if err := f.Commit(); err != nil {
		return err
	}
	return f.syncWAL()
}

// syncWAL makes the WAL durable. That there is one is: SQLite syncs the header of
// a new WAL with the first commit into it, and its folder with that.
func (f *File) syncWAL() error {
	wal, err := os.Open(f.path + "-wal") // no lock of SQLite's lives on this file
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.disk.Begin("a sync", wal.Name(), stall.Long)()
	return errors.Join(wal.Sync(), wal.Close())
}
