package ship

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// disk is what a Stage needs of a file system.
type disk interface {
	// open opens a file for reading and writing, and makes it if it is not there.
	open(path string) (file, error)
	// exists tells how things are.
	exists(path string) (bool, error)
	// remove deletes a file, if it is there.
	remove(path string) error
	// syncFolder makes durable which files a folder has.
	syncFolder(dir string) error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// osDisk is the real one.
type osDisk struct{}

type osFile struct{ *os.File }

// Size implements file.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osDisk) open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	return osFile{f}, err
}

func (osDisk) exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (osDisk) remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (osDisk) syncFolder(dir string) error {
	for range 3 { // and the folders above it, which may be new too
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
