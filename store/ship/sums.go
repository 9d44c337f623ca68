package ship

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// sums keeps the hash of every page of a database, in a file without a name: 32 bytes
// a page on disk, and a few pages' in memory.
type sums struct {
	f     scratch
	first uint32 // page of the first hash in next
	next  []byte // hashes of consecutive pages that are not written yet
}

// scratch is what sums needs of a file.
type scratch interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

const sumsPiece = 128 * len(pageHash{})

func openSums(dir string) (*sums, error) {
	f, err := os.CreateTemp(dir, ".sums-*")
	if err != nil {
		return nil, fmt.Errorf("make a file for the hashes of pages: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &sums{f: f}, nil
}

func sumAt(page uint32) int64 { return int64(page-1) * int64(len(pageHash{})) }

func (s *sums) read(page uint32) (h pageHash, err error) {
	if n := uint32(len(s.next) / len(h)); page >= s.first && page-s.first < n {
		return pageHash(s.next[sumAt(page-s.first+1):]), nil
	}
	_, err = s.f.ReadAt(h[:], sumAt(page))
	return h, err
}

func (s *sums) write(page uint32, h pageHash) error {
	if n := uint32(len(s.next) / len(h)); n > 0 && (page != s.first+n || len(s.next) == sumsPiece) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if len(s.next) == 0 {
		s.first = page
	}
	s.next = append(s.next, h[:]...)
	return nil
}

func (s *sums) flush() error {
	if len(s.next) == 0 {
		return nil
	}
	_, err := s.f.WriteAt(s.next, sumAt(s.first))
	s.next = s.next[:0]
	return err
}

func (s *sums) close() error { return s.f.Close() }
