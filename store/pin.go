package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Pin is one state of a file, kept readable for as long as the pin is open: a
// read transaction on a connection of its own. It is for long work in the
// background, which reads it in bounded pieces and holds no slot between them.
//
// While a pin is open the file's WAL is not moved further than the pin's state,
// and so grows with every write: whoever pins bounds the time. Whoever pins also
// keeps the file from being closed (Handles.Acquire's release) until after Close.
// A Pin may be used from several goroutines, one after the other.
type Pin struct {
	file    *File
	control Control
	most    int64       // bytes of WAL that it may keep; 0 for one that keeps none
	over    atomic.Bool // the WAL is larger

	mu     sync.Mutex
	c      *Conn // nil when it has ended
	broken error // why the state is gone
}

var errPinLost = errors.New("the pinned state is gone")

// Pin commits what is open and pins the latest state.
func (f *File) Pin() (*Pin, error) {
	if err := f.Commit(); err != nil {
		return nil, err
	}
	c, err := f.takeLong()
	if err != nil {
		return nil, err
	}
	f.enter()
	defer f.leave()
	if c == nil {
		if c, err = f.openReader(); err != nil {
			return nil, err
		}
	}
	p := &Pin{file: f, c: c}
	if err = c.Query("BEGIN", nil); err == nil {
		p.control, err = f.readControl(c) // the first read is what begins the state
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pin %s: %w", f.path, err), f.giveReader(c))
	}
	return p, nil
}

// Control is the control row in the pinned state.
func (p *Pin) Control() Control { return p.control }

// Read runs fn, one bounded piece of work, on the pinned state. It takes a slot
// for the call. A statement of fn's that runs when done closes is interrupted;
// done may be nil. An error of fn's leaves the pin as it is.
func (p *Pin) Read(done <-chan struct{}, fn func(*Conn) error) error {
	p.mu.Lock()
	defer p.unlock()
	if p.broken != nil {
		return p.broken
	}
	if p.c == nil {
		return os.ErrClosed
	}
	p.file.enter()
	defer p.file.leave()
	if done != nil {
		p.c.c.SetInterrupt(done)
	}
	defer func() {
		if done != nil {
			p.c.c.SetInterrupt(nil)
		}
		if p.c.c.AutocommitEnabled() { // some errors end the transaction by themselves
			p.broken = fmt.Errorf("%s: %w", p.file.path, errPinLost)
		}
	}()
	return fn(p.c)
}

// unlock lets go of mu, and ends the pin if that was asked for in the meantime.
func (p *Pin) unlock() {
	p.mu.Unlock()
	if !p.over.Load() || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	p.file.enter()
	defer p.file.leave()
	_ = p.end(ErrPinOutgrown) // it has only read
}

// giveWay lets go of the slot while meanwhile runs, in the middle of a Read whose
// statement goes on.
func (p *Pin) giveWay(meanwhile func()) {
	p.file.leave()
	defer p.file.enter()
	meanwhile()
}

// Close ends the pin. A second call does nothing.
func (p *Pin) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return nil
	}
	p.file.enter()
	defer p.file.leave()
	return p.end(nil)
}

// end gives the connection back; why is what a later Read says, nil if there is none
// to come. The caller holds mu and a slot.
func (p *Pin) end(why error) error {
	if p.c == nil {
		return nil
	}
	c, f := p.c, p.file
	p.c = nil
	if why != nil && p.broken == nil {
		p.broken = fmt.Errorf("%s: %w", f.path, why)
	}
	if p.most > 0 {
		f.rmu.Lock()
		f.keepers = slices.DeleteFunc(f.keepers, func(k *Pin) bool { return k == p })
		f.rmu.Unlock()
	}
	var err error
	if !c.c.AutocommitEnabled() {
		err = c.Query("ROLLBACK", nil)
	}
	return errors.Join(err, f.giveReader(c))
}

// Pages returns the size of the file's pages in bytes and how many of them the
// pinned state has.
func (p *Pin) Pages(done <-chan struct{}) (size int, count uint32, err error) {
	err = p.Read(done, func(c *Conn) error {
		if _, err := c.One("PRAGMA page_size", func(r *Row) error { size = r.ColumnInt(0); return nil }); err != nil {
			return err
		}
		_, err := c.One("PRAGMA page_count", func(r *Row) error { count = uint32(r.ColumnInt64(0)); return nil })
		return err
	})
	if err == nil && (size < 512 || count == 0) {
		err = fmt.Errorf("%s has %d pages of %d bytes", p.file.path, count, size)
	}
	return size, count, err
}

// ReadPages fills into, whole pages of size bytes each, with the pages from first
// on, counted from 1, byte for byte as they are in the pinned state.
func (p *Pin) ReadPages(done <-chan struct{}, size int, first uint32, into []byte) error {
	return p.Read(done, func(c *Conn) error {
		for n := first; len(into) > 0; n++ {
			found, err := c.One("SELECT data FROM sqlite_dbpage WHERE pgno = ?", func(r *Row) error {
				if got := r.ColumnLen(0); got != size || len(into) < size {
					return fmt.Errorf("page %d of %s has %d bytes, not %d", n, p.file.path, got, size)
				}
				r.ColumnBytes(0, into[:size])
				return nil
			}, int64(n))
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("%s has no page %d", p.file.path, n)
			}
			into = into[size:]
		}
		return nil
	})
}

// copyPiece is how many bytes of pages one piece of a copy reads.
const copyPiece = 256 << 10

// CopyTo writes the pinned state, page for page, to path, which must not exist,
// and makes it durable.
func (p *Pin) CopyTo(path string) error {
	size, count, err := p.Pages(nil)
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	buf := make([]byte, max(copyPiece/size, 1)*size)
	for first := uint32(1); first <= count && err == nil; {
		n := min(uint32(len(buf)/size), count-first+1)
		if err = p.ReadPages(nil, size, first, buf[:int(n)*size]); err == nil {
			_, err = to.Write(buf[:int(n)*size])
		}
		first += n
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", p.file.path, err)
	}
	return syncPath(path)
}
