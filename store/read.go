package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"zombiezen.com/go/sqlite"

	"celld/store/room"
	"celld/store/stall"
)

// keepReaders is how many idle reader connections a file keeps.
const keepReaders = 2

// patience is how many Views of a file without readers wait for its writer before
// readers are opened. Opening one costs as much as thirty short reads.
const patience = 16

// View runs fn, a few short statements that only read, on the latest state. It is
// not interrupted. It runs on the writer's connection while a transaction is open,
// and as long as the file has no readers: they are opened when Views had to wait
// for the writer some times.
func (f *File) View(fn func(*Conn) error) error {
	if f.onWriter() {
		return f.viewOnWriter(fn)
	}
	if err := f.queueUp(); err != nil {
		return err
	}
	defer f.stepOut()
	c, parked, err := f.takeFree()
	if err != nil {
		return err
	}
	if c == nil && !f.share.take(perReader-parked) {
		f.park(parked)
		f.mu.Lock() // the writer will do
		return f.viewOnWriter(fn)
	}
	f.enter()
	defer f.leave()
	return f.readOn(c, nil, fn)
}

// viewOnWriter is called with mu held, and lets go of it.
func (f *File) viewOnWriter(fn func(*Conn) error) error {
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	f.enter()
	defer f.leave()
	return fn(f.w)
}

// onWriter says whether a View is to run on the writer's connection, and if so it
// returns with mu held.
func (f *File) onWriter() bool {
	if f.open.Load() {
		f.mu.Lock()
		return true
	}
	f.rmu.Lock()
	readers := len(f.free) > 0 || f.views > 0
	f.rmu.Unlock()
	if readers {
		return false
	}
	if f.mu.TryLock() {
		return true
	}
	if f.missed.Add(1) > patience {
		return false
	}
	f.mu.Lock()
	return true
}

// queueUp lets at most keepReaders Views of a file read at a time. The next one
// waits for one of them, which takes microseconds, rather than open a connection,
// which takes half a millisecond.
func (f *File) queueUp() error {
	f.rmu.Lock()
	defer f.rmu.Unlock()
	for f.views >= keepReaders && !f.closed {
		f.viewed.Wait()
	}
	if f.closed {
		return os.ErrClosed
	}
	f.views++
	return nil
}

func (f *File) stepOut() {
	f.rmu.Lock()
	f.views--
	f.rmu.Unlock()
	f.viewed.Signal()
}

// Scan runs fn on a reader connection in one read transaction on the latest
// state, interrupted when ctx ends. The connection is as good as new for its
// next user.
func (f *File) Scan(ctx context.Context, fn func(*Conn) error) error {
	done, err := f.slots.scan(ctx)
	if err != nil {
		return err
	}
	defer done()
	switch err := f.Commit(); {
	case errors.Is(err, room.ErrFull):
		return f.View(fn) // the writer's connection sees it all; a scan is bounded
	case err != nil:
		return err
	}
	return f.read(ctx.Done(), func(c *Conn) error {
		if err := c.Query("BEGIN", nil); err != nil {
			return err
		}
		err := fn(c)
		c.c.SetInterrupt(nil)
		if end := c.Query("ROLLBACK", nil); err == nil {
			err = end
		}
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		return err
	})
}

// read is for reads that may be long. The caller holds no lock and no slot.
func (f *File) read(done <-chan struct{}, fn func(*Conn) error) error {
	c, err := f.takeLong()
	if err != nil {
		return err
	}
	f.enter()
	defer f.leave()
	return f.readOn(c, done, fn)
}

// readOn runs fn on c, or on a new reader, whose descriptors are taken already, if
// c is nil.
func (f *File) readOn(c *Conn, done <-chan struct{}, fn func(*Conn) error) (err error) {
	if c == nil {
		if c, err = f.openReader(); err != nil {
			return err
		}
	}
	if done != nil {
		c.c.SetInterrupt(done)
	}
	defer func() { // after a panic of fn's too
		if done != nil {
			c.c.SetInterrupt(nil)
		}
		if give := f.giveReader(c); err == nil {
			err = give
		}
	}()
	return fn(c)
}

// takeFree takes a reader that nobody uses. If there is none it takes the parked
// descriptor that a new one will have, if there is one.
func (f *File) takeFree() (c *Conn, parked int, err error) {
	f.rmu.Lock()
	defer f.rmu.Unlock()
	if f.closed {
		return nil, 0, os.ErrClosed
	}
	n := len(f.free)
	if n == 0 {
		parked = min(f.parked, 1)
		f.parked -= parked
		return nil, parked, nil
	}
	c = f.free[n-1]
	f.free = f.free[:n-1]
	f.share.spare(f, n > 1)
	return c, 0, nil
}

func (f *File) park(n int) {
	f.rmu.Lock()
	f.parked += n
	f.rmu.Unlock()
}

// unpark gives the parked descriptors back: the last connection is closed.
func (f *File) unpark() {
	f.rmu.Lock()
	n := f.parked
	f.parked = 0
	f.rmu.Unlock()
	f.share.give(n)
}

// takeLong takes a reader that nobody uses, or the descriptors of a new one. The
// caller holds no lock and no slot.
func (f *File) takeLong() (*Conn, error) {
	c, parked, err := f.takeFree()
	if c == nil && err == nil {
		if err = f.share.takeLong(perReader - parked); err != nil {
			f.park(parked)
		}
	}
	return c, err
}

// openReader opens a reader, whose descriptors are taken already.
func (f *File) openReader() (*Conn, error) {
	c, err := openConn(f.path, readerPragmas, sqlite.OpenReadWrite)
	if err != nil {
		f.readerGone()
	}
	return c, err
}

func (f *File) giveReader(c *Conn) error {
	f.rmu.Lock()
	if !f.closed && len(f.free) < keepReaders && c.c.AutocommitEnabled() {
		f.free = append(f.free, c)
		f.share.spare(f, true)
		f.rmu.Unlock()
		f.share.notify()
		return nil
	}
	f.rmu.Unlock()
	return f.closeReader(c)
}

func (f *File) closeReader(c *Conn) error {
	err := c.c.Close()
	f.readerGone()
	return err
}

func (f *File) readerGone() {
	f.park(1)
	f.share.give(perReader - 1)
}

// closeFree closes the readers that nobody uses.
func (f *File) closeFree() (n int, err error) {
	f.rmu.Lock()
	free := f.free
	f.free = nil
	f.going += len(free)
	f.share.spare(f, false)
	f.rmu.Unlock()
	for _, c := range free {
		err = errors.Join(err, f.closeReader(c))
	}
	f.rmu.Lock()
	f.going -= len(free)
	f.rmu.Unlock()
	f.viewed.Broadcast()
	return len(free), err
}

// closeReaders closes the readers for good, and waits for those that somebody who
// looks for descriptors is closing: when a file counts as closed nobody has a
// connection to it, since another may take its place.
func (f *File) closeReaders() error {
	f.rmu.Lock()
	f.closed = true
	f.rmu.Unlock()
	f.viewed.Broadcast()
	_, err := f.closeFree()
	f.rmu.Lock()
	for f.going > 0 {
		f.viewed.Wait()
	}
	f.rmu.Unlock()
	return err
}

// maintain runs a checkpoint, which query_only would forbid, on a reader.
func (f *File) maintain(sql string, args ...any) error {
	return f.read(nil, func(c *Conn) error {
		if err := c.Query("PRAGMA query_only = OFF", nil); err != nil {
			return err
		}
		returned := f.disk.Begin("a checkpoint", f.path, stall.Long)
		err := c.Query(sql, nil, args...)
		returned()
		return errors.Join(err, c.Query("PRAGMA query_only = ON", nil))
	})
}

// Check reads the whole file and reports what makes no sense in it, as an error
// for which IsBad holds. It takes long for a large file, and a slot as long.
func (f *File) Check() error {
	return f.read(nil, func(c *Conn) error { return quickCheck(c, f.path) })
}

// Check is File.Check of the pinned state.
func (p *Pin) Check() error {
	return p.Read(nil, func(c *Conn) error { return quickCheck(c, p.file.path) })
}

func quickCheck(c *Conn, path string) error {
	return c.Query("PRAGMA quick_check(1)", func(r *Row) error {
		if said := r.ColumnText(0); said != "ok" {
			return fmt.Errorf("%s: %w: %s", path, errUnsound, said)
		}
		return nil
	})
}
