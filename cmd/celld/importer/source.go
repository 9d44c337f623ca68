package importer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// source is one CSV file that is being read.
type source struct {
	path   string
	file   *os.File
	size   int64 // 0 if it is not known
	reader *csvReader
	layout *layout
	read   atomic.Int64 // bytes, for the progress line
}

// openSource opens a file and binds its header.
func openSource(k *kind, path string, flags assignments) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, file: f}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	if err := s.bind(k, flags); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *source) bind(k *kind, flags assignments) error {
	var err error
	if s.reader, err = newCSVReader(s.file); err != nil {
		return err
	}
	header, line, err := s.reader.next()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; its first line must name the columns")
	}
	if err != nil {
		return err
	}
	if s.layout, err = bind(k, header, flags); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return nil
}

func (s *source) next() ([]string, int, error) {
	record, line, err := s.reader.next()
	s.read.Store(s.reader.offset)
	return record, line, err
}
