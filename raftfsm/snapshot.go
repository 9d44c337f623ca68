package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"celld/store/room"
)

// snapshots is the snapshot store: Raft's own on disk, in whose place a follower
// gets what toSend makes.
type snapshots struct {
	*raft.FileSnapshotStore
	dir   string // for what is being sent
	space Space
	fsm   *fsm
}

const sentPrefix = "sent-"

func openSnapshots(dir string, space Space, logger hclog.Logger) (*snapshots, error) {
	// One is enough, since a new one is in place before the old one goes.
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 1, logger)
	if err != nil {
		return nil, err
	}
	// What a crash left half made, of either kind, is nobody's: the library passes
	// over its own at every look, but leaves it lying.
	for _, pattern := range []string{filepath.Join(dir, sentPrefix+"*"), filepath.Join(dir, "snapshots", "*.tmp")} {
		left, bad := filepath.Glob(pattern)
		err = errors.Join(err, bad)
		for _, path := range left {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return &snapshots{FileSnapshotStore: files, dir: dir, space: space}, err
}

// Create implements raft.SnapshotStore. Without disk space none is begun, neither
// one of this member's nor one that a leader sends: Raft goes on and tries again.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	if s.fsm.room.Look() == room.None {
		return nil, s.fsm.room.Err()
	}
	return s.FileSnapshotStore.Create(version, index, term, members, membersIndex, trans)
}

// Open implements raft.SnapshotStore. The library opens a snapshot to send it, or
// to have the one restored that it has just received.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	m, err := readManifest(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, nil, err
	}
	if m.Kind == kindSent {
		return s.FileSnapshotStore.Open(id) // received from another, and as good for a third
	}
	out, err := s.toSend(meta.Index)
	if err != nil {
		return nil, nil, fmt.Errorf("make what is sent of snapshot %s: %w", id, err)
	}
	sending := *meta
	sending.Size = out.size
	return &sending, out, nil
}

// newest returns the newest snapshot's description and manifest, nil if there is
// no snapshot.
func (s *snapshots) newest() (*raft.SnapshotMeta, *manifest, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	_, content, err := s.FileSnapshotStore.Open(list[0].ID)
	if err != nil {
		return nil, nil, err
	}
	m, err := readManifest(content)
	return list[0], m, errors.Join(err, content.Close())
}

// recover makes sure, before Raft starts, that the local files are what the
// newest snapshot says, or absent, and returns that snapshot's index. The library
// moves an installed snapshot into place before it has it restored, and starts
// behind it either way.
func (s *snapshots) recover(group string) (uint64, error) {
	meta, m, err := s.newest()
	if err != nil {
		return 0, err
	}
	if meta == nil {
		return 0, s.space.Recover(nil)
	}
	if m.Group != group {
		return 0, fmt.Errorf("the snapshot %s is of the group %q, not of %q", meta.ID, m.Group, group)
	}
	whole, err := s.space.Installed(installation(m))
	switch {
	case err != nil:
		return 0, err
	case !whole && m.Kind == kindLocal:
		return 0, fmt.Errorf("this group's own file is behind this member's own snapshot (it should have index %d) and the log before that is gone: "+
			"put the file back, or remove this member from the group and add a new one under a new id", m.Files[0].Index)
	case !whole:
		if err := s.installAgain(meta.ID, group); err != nil {
			return 0, fmt.Errorf("finish the installation of the snapshot %s: %w", meta.ID, err)
		}
	}
	return meta.Index, s.space.Recover(m.Files)
}

func (s *snapshots) installAgain(id, group string) error {
	_, content, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return err
	}
	_, err = install(content, group, s.dir, s.space)
	return errors.Join(err, content.Close())
}
