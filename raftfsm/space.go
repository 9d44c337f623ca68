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
type Space interface {
	// Acquire returns the open file of a target and a function that gives it
	// back. "" is the group's own file. A *fault.Error refuses the commands for
	// that target; any other error stops the node.
	Acquire(target string) (f *store.File, release func(), err error)
	// Files lists every file with its applied index, the group's own included.
	Files() ([]store.FileState, error)
	// Sync makes every file durable up to what was committed before the call.
	Sync() error
	// Install puts the files of a snapshot in the place of the local ones: it
	// closes what is open under a target, calls Place, and opens it anew when it
	// is next asked for. Files come in the order in which they are to be placed:
	// tenants first, the group's own last, so that the group's file never points
	// at one that is not there. A local file that is further than the staged one
	// may be kept. Everything is durable when Install returns nil. After an error
	// or a crash in the middle it is called again with all of them.
	Install(files []Staged) error
}

// Staged is one file of a snapshot that lies, complete and durable, in a folder
// of the group's own on the same file system as the group's Dir.
type Staged struct {
	store.FileState
	Path string
}

// Place moves the staged file to path, over whatever closed file lies there, and
// makes it durable. The old file goes first with everything beside it, because
// SQLite would replay an old WAL into a new file; a crash in between leaves no
// file, which the group notices when it starts. A staged file that was placed
// before is left where it is.
func (s Staged) Place(path string) error {
	if _, err := os.Stat(s.Path); errors.Is(err, os.ErrNotExist) {
		if _, placed := os.Stat(path); placed == nil {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := store.Remove(path); err != nil {
		return err
	}
	if err := os.Rename(s.Path, path); err != nil {
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
		err = f.Sync()
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
