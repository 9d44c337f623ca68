package raftfsm

import (
	"errors"
	"os"
	"path/filepath"

	"celld/store"
)

// Space is the set of files that one group replicates into. The group calls
// Acquire from several goroutines at once; Files, Sync and Install may run
// beside them, except that Install never runs beside an apply.
//
// A target is absent when its file is missing here, behind, or bad. That is
// durable, and ends when the file has been fetched (Group.CatchUp).
type Space interface {
	// Acquire returns the open file of a target and a function that gives it
	// back. "" is the group's own file. ErrAbsent says that the target is absent,
	// room.ErrFull that it can't be opened before there is disk space: apply waits.
	// A *fault.Error of any kind but Internal and Unavailable refuses the commands
	// for that target, and is the same on every replica; any other error stops the
	// node.
	Acquire(target string) (f *store.File, release func(), err error)
	// Files lists every file with its applied index, the group's own included. It
	// opens none that was not open since the start: Recover has told its index.
	Files() ([]store.FileState, error)
	// Sync makes every file durable up to what was committed before the call, those
	// of absent targets excepted.
	Sync() error
	// Damaged makes a target absent because of what its file did.
	Damaged(target string, cause error) error
	// Absent is how many targets are absent.
	Absent() int

	// Recover is called once, before Raft starts: what the newest snapshot says
	// of the files, which have reached that durably or are absent. A file that
	// turns out not to have makes its target absent.
	Recover(files []store.FileState) error
	// Installed reports whether s was installed to its end and the group's own
	// file is as far as s says.
	Installed(s Installation) (bool, error)
	// Install makes absent whatever the snapshot has and the local files lack,
	// and then puts the snapshot's own file of the group in the place of the
	// local one, if that is behind. It fetches nothing. Everything is durable when
	// Install returns nil. After an error or a crash in the middle it is called
	// again.
	Install(s Installation) error
}

// Resident is a Space that can tell for which targets commands are applied without
// disk space, for as long as there is none: their files are open, and what is not
// committed waits in memory.
type Resident interface {
	Resident(target string) bool
}

// Installation is a snapshot that a leader sent. The group's own file lies,
// complete and durable, at Own, on the same file system as the group's Dir.
type Installation struct {
	ID    string // of this very sending
	Index uint64
	Files []store.FileState // of the sender, the group's own first
	Own   string
}

// OwnIndex is the applied index of the group's own file.
func (s *Installation) OwnIndex() uint64 {
	for _, f := range s.Files {
		if f.Target == "" {
			return f.Index
		}
	}
	return 0
}

// Place moves the file of an installation to path, over whatever closed file lies
// there, and makes it durable. The old file goes first with everything beside it,
// because SQLite would replay an old WAL into a new file; a crash in between
// leaves no file, which the group notices when it starts.
func (s *Installation) Place(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := store.Remove(path); err != nil {
		return err
	}
	if err := os.Rename(s.Own, path); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(path), 3)
}

// syncDirs makes dir's entries durable and those of the folders above it.
func syncDirs(dir string, depth int) error {
	for ; depth > 0; depth-- {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), f.Close())
		if err != nil {
			return err
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
