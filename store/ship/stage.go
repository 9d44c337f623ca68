package ship

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"celld/store"
	"celld/store/fault"
	"celld/store/room"
)

// ErrFinished says that a folder has a file that was finished, and no stage.
var ErrFinished = fault.New(fault.Conflict, "copy-finished", "the copy of the tenant's file is finished already")

// defaultMaxBytes is how large a staged file may be.
const defaultMaxBytes = 1 << 40

// StageConfig is what a Stage needs.
type StageConfig struct {
	Dir      string        // a folder that nothing else uses; it is made
	Name     string        // of the database in it
	Schema   *store.Schema // of the database, to look into it
	MaxBytes int64         // that the database may have; 0 for 1 TiB
	Room     *room.Room    // nothing is taken while there is none; nil for no end of it
}

// Stage is a copy's other end: a database that is built from pages and then frames,
// which nobody opens before it is finished. What its methods have returned is durable.
//
// A crash leaves a stage that goes on where it was, or, if what is on disk is not
// exactly that, an empty one. An error of its own files makes it refuse everything
// until it is opened again. Its methods may be called from any goroutine; one works
// at a time, others wait.
type Stage struct {
	cfg        StageConfig
	disk       disk
	saveEvery  int   // bytes of pages that a crash may lose
	applyEvery int64 // bytes to which the tail grows until it is applied, once a commit ends

	mu     sync.Mutex // of everything below
	db     file       // nil while SQLite has it
	tail   file       // frames that are not applied
	log    *journal
	rec    record
	tally  *tally // of db; nil when empty
	page   []byte // one page
	broken error

	pmu      sync.Mutex
	progress Progress
}

// Progress is how far a stage is.
type Progress struct {
	Start Start  // the zero value for an empty stage
	Pages uint32 // of the pinned state that are there
	Whole bool   // all of them are: frames are next
	At    Point  // what the stage has, if it is whole
}

// Next is the first page to ask for.
func (p Progress) Next() uint32 { return p.Pages + 1 }

// OpenStage opens the stage in a folder, or makes one.
func OpenStage(cfg StageConfig) (*Stage, error) { return openStage(cfg, osDisk{}) }

func openStage(cfg StageConfig, d disk) (s *Stage, err error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	s = &Stage{cfg: cfg, disk: d, saveEvery: 32 << 20, applyEvery: 8 << 20}
	begun, err := d.exists(s.recordPath())
	if err != nil {
		return nil, err
	}
	if !begun {
		switch finished, err := d.exists(s.path()); {
		case err != nil:
			return nil, err
		case finished:
			return nil, ErrFinished
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open the stage in %s: %w", cfg.Dir, err), s.close())
			s = nil
		}
	}()
	for _, suffix := range []string{"-wal", "-shm", "-journal"} { // of an Inspect that was cut off: it wrote nothing
		if err := d.remove(s.path() + suffix); err != nil {
			return s, err
		}
	}
	records, err := d.open(s.recordPath())
	if err != nil {
		return s, err
	}
	s.log = &journal{f: records}
	if s.rec, err = s.log.load(); err != nil {
		return s, err
	}
	if !begun { // before the database, so that one without a record is a finished one
		if err := errors.Join(s.log.store(&s.rec), d.syncFolder(cfg.Dir)); err != nil {
			return s, err
		}
	}
	if s.db, err = d.open(s.path()); err != nil {
		return s, err
	}
	if s.tail, err = d.open(s.tailPath()); err != nil {
		return s, err
	}
	if err := s.disk.syncFolder(cfg.Dir); err != nil {
		return s, err
	}
	return s, s.resume()
}

func (s *Stage) path() string       { return filepath.Join(s.cfg.Dir, s.cfg.Name) }
func (s *Stage) tailPath() string   { return s.path() + ".tail" }
func (s *Stage) recordPath() string { return s.path() + ".stage" }

// errUnlike says that the files are not as the record says.
var errUnlike = errors.New("the stage is not as it says")

// resume brings the files to what the record says, or empties the stage.
func (s *Stage) resume() error {
	err := s.restore()
	if errors.Is(err, errUnlike) {
		return s.empty()
	}
	if err == nil {
		s.tell()
	}
	return err
}

func (s *Stage) restore() error {
	if s.rec.phase == phaseEmpty {
		return s.empty()
	}
	if s.check(s.rec.start.Position) != nil || s.rec.at.PageSize != s.rec.start.PageSize {
		return errUnlike
	}
	s.begin()
	have, err := s.db.Size()
	if err != nil {
		return err
	}
	switch size := int64(s.rec.start.PageSize); s.rec.phase {
	case phasePages:
		if have < int64(s.rec.pages)*size || s.rec.pages > s.rec.start.Pages {
			return errUnlike
		}
		s.tally.resume(s.rec.pages, s.rec.at.Digest)
		return errors.Join(s.db.Truncate(int64(s.rec.pages)*size), s.tail.Truncate(0))
	case phaseFrames, phaseMidway:
		if have != int64(s.rec.at.Pages)*size {
			return errUnlike
		}
		s.tally.resume(s.rec.at.Pages, s.rec.at.Digest)
		return s.tail.Truncate(0)
	case phaseApplying:
		return s.applyAgain()
	}
	return errUnlike
}

// begin gets ready for pages of the record's size.
func (s *Stage) begin() {
	s.page = make([]byte, s.rec.start.PageSize)
	s.tally = newTally(s.rec.start.PageSize)
	s.tally.old = func(page uint32) (pageHash, error) {
		if _, err := s.db.ReadAt(s.page, s.pageAt(page)); err != nil {
			return pageHash{}, err
		}
		return s.tally.of(page, s.page), nil
	}
}

func (s *Stage) pageAt(page uint32) int64 { return int64(page-1) * int64(len(s.page)) }

// check refuses a database that is too large.
func (s *Stage) check(p Position) error {
	if size := int64(p.Pages) * int64(p.PageSize); size > s.cfg.MaxBytes {
		return fault.New(fault.TooLarge, "copy-too-large", "the tenant's file has %d bytes; this node takes at most %d", size, s.cfg.MaxBytes)
	}
	return nil
}

// empty forgets everything that was staged.
func (s *Stage) empty() error {
	s.rec, s.tally, s.page = record{}, nil, nil
	err := s.log.store(&s.rec)
	if err == nil {
		err = errors.Join(s.db.Truncate(0), s.tail.Truncate(0))
	}
	s.tell()
	return err
}

// Reset starts over: nothing that was staged remains.
func (s *Stage) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil && !errors.Is(err, ErrBroken) {
		return err
	}
	s.broken = nil
	return s.own(s.empty())
}

func (s *Stage) usable() error {
	if s.broken != nil {
		return s.broken
	}
	if s.db == nil {
		return os.ErrClosed
	}
	return nil
}

// own keeps in mind that the stage's own files failed: what is on disk is not known
// any more, and is found out when they are opened again.
func (s *Stage) own(err error) error {
	if err != nil && s.broken == nil {
		s.broken = fmt.Errorf("the stage in %s must be opened again: %w", s.cfg.Dir, err)
	}
	return err
}

// spoil ends the copy: what is staged is of no use.
func (s *Stage) spoil(why error) error {
	err := ErrBroken.Because(why)
	if emptied := s.own(s.empty()); emptied != nil {
		return errors.Join(err, emptied)
	}
	s.broken = err
	return err
}

// Progress says how far the stage is. It does not wait for what is being taken.
func (s *Stage) Progress() Progress {
	s.pmu.Lock()
	defer s.pmu.Unlock()
	return s.progress
}

func (s *Stage) tell() {
	p := Progress{Start: s.rec.start}
	switch s.rec.phase {
	case phasePages:
		p.Pages = s.tally.pages
	case phaseFrames, phaseMidway, phaseApplying:
		p.Pages, p.Whole, p.At = s.rec.start.Pages, true, s.rec.at
	}
	s.pmu.Lock()
	s.progress = p
	s.pmu.Unlock()
}

// Verify reads the staged database and compares it with the digest that was kept
// while it was built.
func (s *Stage) Verify(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.wholeNow(); err != nil {
		return err
	}
	d, err := s.digest(ctx, s.rec.at.Pages)
	if err != nil {
		return err
	}
	if d != s.rec.at.Digest {
		return s.spoil(fmt.Errorf("the staged pages have the digest %s, %s was kept", d, s.rec.at.Digest))
	}
	return nil
}

// digest reads so many pages of the database.
func (s *Stage) digest(ctx context.Context, pages uint32) (d Digest, err error) {
	t, size := newTally(uint32(len(s.page))), len(s.page)
	buf := make([]byte, max(pieceBytes/size, 1)*size)
	for t.pages < pages {
		if ctx.Err() != nil {
			return d, context.Cause(ctx)
		}
		part := buf[:min(len(buf)/size, int(pages-t.pages))*size]
		if _, err := s.db.ReadAt(part, s.pageAt(t.pages+1)); err != nil {
			return d, err
		}
		for ; len(part) > 0; part = part[size:] {
			if err := t.put(t.pages+1, part[:size]); err != nil {
				return d, err
			}
		}
	}
	return t.digest(), nil
}

var errNotWhole = fault.New(fault.Conflict, "copy-not-whole", "the staged file is not whole yet; take all its pages, and its round to the end")

// wholeNow refuses what needs the whole state of a position.
func (s *Stage) wholeNow() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.rec.phase != phaseFrames && s.rec.phase != phaseMidway {
		return errNotWhole
	}
	return nil
}

// Inspect opens the staged database and has fn read from it. No call of SQLite's in
// it takes a slot.
func (s *Stage) Inspect(fn func(*store.Pin) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.wholeNow(); err != nil {
		return err
	}
	// Closing a descriptor would drop SQLite's locks: while SQLite has the file this
	// holds none.
	if err := s.db.Close(); err != nil {
		return s.own(err)
	}
	s.db = nil
	read := s.inspect(fn)
	db, err := s.disk.open(s.path())
	if err != nil {
		return errors.Join(read, s.own(err))
	}
	s.db = db
	size, err := s.db.Size()
	left, look := s.disk.exists(s.path() + "-wal")
	if err = errors.Join(err, look); err != nil {
		return errors.Join(read, s.own(err))
	}
	if left || size != s.pageAt(s.rec.at.Pages+1) {
		return errors.Join(read, s.spoil(errors.New("who looked into the staged file has changed it")))
	}
	return read
}

func (s *Stage) inspect(fn func(*store.Pin) error) (err error) {
	f, err := store.Open(s.path(), s.cfg.Schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := f.Pin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return fn(p)
}

// Finish leaves the database alone in its folder, durable and ready to be opened, and
// closes the stage.
func (s *Stage) Finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.wholeNow(); err != nil {
		return err
	}
	if s.rec.phase != phaseFrames {
		return errNotWhole
	}
	if _, err := s.db.ReadAt(s.page, 0); err != nil {
		return s.own(err)
	}
	if err := checkHeader(s.page, s.rec.at.Pages); err != nil {
		return s.spoil(err)
	}
	err := s.own(errors.Join(s.db.Sync(), s.close()))
	if err == nil {
		err = s.disk.remove(s.tailPath())
	}
	if err == nil {
		err = s.disk.syncFolder(s.cfg.Dir)
	}
	if err == nil { // last: it says that the rest is not finished
		err = s.disk.remove(s.recordPath())
	}
	if err == nil {
		err = s.disk.syncFolder(s.cfg.Dir)
	}
	return err
}

// checkHeader says whether page 1 is that of a database in WAL mode with so many
// pages.
func checkHeader(page []byte, pages uint32) error {
	size := int(binary.BigEndian.Uint16(page[16:]))
	if size == 1 {
		size = math.MaxUint16 + 1
	}
	switch {
	case string(page[:16]) != "SQLite format 3\x00" || size != len(page):
		return errors.New("page 1 is not that of a database")
	case page[18] != 2 || page[19] != 2:
		return errors.New("the database is not in WAL mode")
	case binary.BigEndian.Uint32(page[28:]) != pages:
		return fmt.Errorf("the database says that it has %d pages, and has %d", binary.BigEndian.Uint32(page[28:]), pages)
	}
	return nil
}

// Close lets go of the files. The stage can be opened again.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close()
}

func (s *Stage) close() (err error) {
	if s.db != nil {
		err = s.db.Close()
		s.db = nil
	}
	if s.tail != nil {
		err = errors.Join(err, s.tail.Close())
		s.tail = nil
	}
	if s.log != nil {
		err = errors.Join(err, s.log.f.Close())
		s.log = nil
	}
	return err
}
