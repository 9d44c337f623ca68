package platform

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"sync"
)

// LogFile is a log of bounded size: when it is full it becomes path.old, in
// place of the one before, and a new one begins. It takes whole writes, so a
// line written by one call is never cut in two.
type LogFile struct {
	mu   sync.Mutex
	path string
	max  int64
	f    *os.File
	size int64
}

// OpenLog appends to the log at path, which holds at most about max bytes.
func OpenLog(path string, max int64) (*LogFile, error) {
	l := &LogFile{path: path, max: max}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *LogFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write implements io.Writer.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, fs.ErrClosed
	}
	if l.size > 0 && l.size+int64(len(b)) > l.max {
		err := errors.Join(l.f.Close(), os.Rename(l.path, l.path+".old"))
		l.f = nil
		if err = errors.Join(err, l.open()); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	return n, err
}

// Close closes the file; what is written later is refused.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// maxLine bounds what a child's log line may hold before it is cut in two.
const maxLine = 64 << 10

// lines passes on whole lines of what is written to it, so that the output of
// several children does not mix within a line. It is used by one goroutine.
type lines struct {
	to  interface{ Write([]byte) (int, error) }
	buf []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.buf = append(l.buf, b...)
	end := bytes.LastIndexByte(l.buf, '\n') + 1
	if end == 0 && len(l.buf) >= maxLine {
		end = len(l.buf)
	}
	if end == 0 {
		return len(b), nil
	}
	_, err := l.to.Write(l.buf[:end])
	l.buf = append(l.buf[:0], l.buf[end:]...)
	return len(b), err
}

func (l *lines) flush() {
	if len(l.buf) > 0 {
		_, _ = l.to.Write(append(l.buf, '\n')) // the last words of a dead child; there is nobody to tell
		l.buf = nil
	}
}
