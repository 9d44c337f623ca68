package raftfsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"celld/store/failpoint"
)

// errAbsences refuses a snapshot: the log that absent files are caught up from
// must stay.
var errAbsences = errors.New("files are absent here, so no snapshot is taken before they have been fetched")

// Snapshot implements raft.FSM. It opens no file and copies nothing: the files
// themselves are the snapshot.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return nil, errStopped
	}
	if f.space.Absent() > 0 {
		return nil, errAbsences
	}
	files, err := f.space.Files()
	if err != nil {
		return nil, err
	}
	return &localSnapshot{fsm: f, manifest: manifest{
		Version: manifestVersion, Kind: kindLocal, Group: f.group, Index: f.progress.applied.Load(), Files: files,
	}}, nil
}

// localSnapshot becomes a manifest.
type localSnapshot struct {
	fsm      *fsm
	manifest manifest
}

// Persist implements raft.FSMSnapshot. The files reach the manifest's indexes
// durably before the manifest exists, and only then is the log cut.
func (s *localSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.fsm.space.Sync(); err != nil {
		return err
	}
	if s.fsm.space.Absent() > 0 { // since Snapshot: what the manifest says of it is not durable
		return errAbsences
	}
	failpoint.Here(failpoint.SnapshotSynced)
	if err := writeManifest(sink, &s.manifest); err != nil {
		return err
	}
	s.fsm.raiseFloor(s.manifest.Index) // before Raft cuts the log
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *localSnapshot) Release() {}

func (f *fsm) raiseFloor(index uint64) {
	for have := f.floor.Load(); index > have && !f.floor.CompareAndSwap(have, index); have = f.floor.Load() {
	}
}

// Restore implements raft.FSM: it installs the snapshot that a leader sent. What
// the targets lack is fetched later, outside of Raft. Before it everything is made
// durable, which takes disk space.
func (f *fsm) Restore(r io.ReadCloser) error {
	if !f.awaitRoom(func() bool { return true }) {
		return errStopped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return errStopped
	}
	failpoint.Here(failpoint.InstallBegun)
	m, err := install(r, f.group, f.dir, f.space)
	if err == nil {
		f.raiseFloor(m.Index)
		f.progress.advance(m.Index, 0)
		err = f.restored.again(m.Index)
	}
	if err != nil {
		// Part of it may be done: the next start does the rest.
		f.failed = true
		err = fmt.Errorf("install a snapshot: %w", err)
		f.fail(err)
	}
	return err
}

// restored notices that one snapshot is installed again and again with nothing
// applied in between. A member whose log conflicts at the snapshot's index is
// sent it for ever.
type restored struct {
	index uint64
	times int
}

const maxRestores = 3

func (r *restored) again(index uint64) error {
	if r.index != index {
		*r = restored{index: index}
	}
	if r.times++; r.times < maxRestores {
		return nil
	}
	return fmt.Errorf("the leader has sent the snapshot at index %d %d times and this member's log still does not follow from it: "+
		"remove this member from the group and add a new one under a new id (a wiped member under its old id could undo acknowledged writes)",
		index, r.times)
}
