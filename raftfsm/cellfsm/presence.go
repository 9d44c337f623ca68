package cellfsm

import (
	"sync"
	"sync/atomic"

	"celld/store"
	"celld/store/tenant"
)

// Kind is a kind of record.
type Kind uint8

const (
	CustomerKind Kind = iota + 1
	InvoiceKind
)

// kindOf tells what kind of record an event is about.
func kindOf(e Event) Kind {
	switch e {
	case CustomerCreated, CustomerUpdated:
		return CustomerKind
	case InvoiceCreated, InvoiceUpdated:
		return InvoiceKind
	}
	return 0
}

// Life is one life of a tenant's file on this replica: from its first opening, over
// any number of closings, until another file takes its place. A number is used once
// in a process.
type Life uint64

// Watcher hears of changes before anybody can see them.
type Watcher interface {
	// Changed says that a record of a file is about to change. It is called while
	// the command is applied, from several goroutines, and must not call the Space.
	Changed(life Life, kind Kind, id int64)
}

// Presence is what this replica knows of a tenant's file while it is closed too,
// for those who remember its records.
//
// Whoever remembers a record notes the file's sequence before it reads the row, and
// keeps the row only if Unchanged(sequence) still holds once it would be found:
// a command that changes a record raises the mark first, then has the record
// forgotten (Watcher), and only then shows its change. So what is remembered is
// current, and what was read before a change can't be put back after it.
type Presence struct {
	life        Life
	incarnation string
	file        atomic.Pointer[store.File] // the latest one that was open
	changed     atomic.Uint64              // sequence of the last command that changed a record
}

// Life is the file's.
func (p *Presence) Life() Life { return p.life }

// Control is the file's control row after the last update, whether the file is open
// or not: nothing changes it while it is closed.
func (p *Presence) Control() store.Control { return p.file.Load().Control() }

// Unchanged reports whether no record has changed, or is about to, since the file
// was at sequence.
func (p *Presence) Unchanged(sequence uint64) bool { return p.changed.Load() <= sequence }

// presences are those of one Space.
type presences struct {
	watcher Watcher // nil for none; set before the first file is opened

	mu      sync.RWMutex
	lives   Life
	of      map[tenant.UID]*Presence
	folders map[tenant.UID]string // of the incarnation, where it has changed since the start
}

func (ps *presences) find(uid tenant.UID) *Presence {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.of[uid]
}

// opened notes a file that is in use now. One that is not what the last one was when
// it closed begins a new life, however it came there. It is false, and nothing is
// noted, for the file of an incarnation whose place another has taken.
func (ps *presences) opened(uid tenant.UID, f *store.File, incarnation string) bool {
	p := ps.find(uid)
	if p != nil && p.file.Load() == f {
		return true
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if current, known := ps.folders[uid]; known && current != incarnation {
		return false
	}
	if p = ps.of[uid]; p != nil {
		last := p.file.Load()
		if last == f {
			return true
		}
		if last.Path() == f.Path() && last.Control() == f.Control() {
			p.file.Store(f)
			return true
		}
	}
	ps.lives++
	p = &Presence{life: ps.lives, incarnation: incarnation}
	p.file.Store(f)
	if ps.of == nil {
		ps.of = make(map[tenant.UID]*Presence)
	}
	ps.of[uid] = p
	return true
}

// turn says which incarnation of a tenant counts from now on, "" for none. The life
// of another one's file ends.
func (ps *presences) turn(uid tenant.UID, incarnation string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.of[uid]; p != nil && p.incarnation != incarnation {
		delete(ps.of, uid)
	}
	if ps.folders == nil {
		ps.folders = make(map[tenant.UID]string)
	}
	ps.folders[uid] = incarnation
}

// gone ends the life of a file that is about to be replaced or must not be read any
// more. Nobody can open it between this and whatever keeps it from being opened.
func (ps *presences) gone(uid tenant.UID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.of, uid)
	delete(ps.folders, uid)
}

// reset ends all lives: cell.db is another one, and nothing is applied meanwhile.
func (ps *presences) reset() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	clear(ps.of)
	clear(ps.folders)
}

// Presence returns what is known of a tenant's file that was open before, nil if
// there is nothing: then it has to be acquired. While the file is held, its presence
// is there and stays.
func (s *Space) Presence(uid tenant.UID) *Presence { return s.presences.find(uid) }

// Watch has w hear of all changes of tenants' records. It is called before the
// first Acquire.
func (s *Space) Watch(w Watcher) { s.presences.watcher = w }

// watch has a tenant's command tell of what it changes. A transaction asks once.
func (s *Space) watch(tx *store.Tx, uid tenant.UID) {
	p := s.presences.find(uid)
	if p == nil || tx.Changing != nil {
		return
	}
	tx.Changing = func(kind uint8, id int64, sequence uint64) {
		p.changed.Store(sequence)
		if s.presences.watcher != nil {
			s.presences.watcher.Changed(p.life, Kind(kind), id)
		}
	}
}
