package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/failpoint"
)

// localSnapshot becomes a manifest: the files themselves are the snapshot.
type localSnapshot struct {
	space    Space
	manifest manifest
}

// Persist implements raft.FSMSnapshot. The files reach the manifest's indexes
// durably before the manifest exists, and only then is the log cut.
func (s *localSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.space.Sync(); err != nil {
		return err
	}
	failpoint.Here(failpoint.SnapshotSynced)
	return writeManifest(sink, &s.manifest)
}

// Release implements raft.FSMSnapshot.
func (s *localSnapshot) Release() {}

// snapshots is the snapshot store: Raft's own on disk, whose manifests it turns
// into bundles when a follower has to be sent one.
type snapshots struct {
	*raft.FileSnapshotStore
	dir   string // for bundles in the making
	space Space
	fsm   *fsm
}

const bundlePrefix = "bundle-"

func openSnapshots(dir string, space Space, logger hclog.Logger) (*snapshots, error) {
	// One is enough, since a new one is in place before the old one goes; and a
	// bundle is as large as all files together.
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 1, logger)
	if err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, bundlePrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return &snapshots{FileSnapshotStore: files, dir: dir, space: space}, err
}

// Open implements raft.SnapshotStore. The library opens a snapshot to send it or
// to install it, so a manifest is always wanted as a bundle.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	m, err := readManifest(content)
	if err != nil {
		return nil, nil, errors.Join(err, content.Close())
	}
	if err := content.Close(); err != nil {
		return nil, nil, err
	}
	if m.Kind == kindBundle {
		return s.FileSnapshotStore.Open(id)
	}
	b, err := s.bundle(meta.Index, m)
	if err != nil {
		return nil, nil, fmt.Errorf("build a bundle of snapshot %s: %w", id, err)
	}
	sent := *meta
	sent.Size = b.size
	return &sent, b, nil
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
// newest snapshot says, and returns that snapshot's index. The library moves an
// installed snapshot into place before it has it restored, and starts behind it
// either way.
func (s *snapshots) recover(group string) (uint64, error) {
	meta, m, err := s.newest()
	if err != nil || meta == nil {
		return 0, err
	}
	if m.Group != group {
		return 0, fmt.Errorf("the snapshot %s is of the group %q, not of %q", meta.ID, m.Group, group)
	}
	behind, err := firstBehind(s.space, m)
	if err != nil || behind == nil {
		return meta.Index, err
	}
	if m.Kind != kindBundle {
		return 0, fmt.Errorf("the file of %q is behind this member's own snapshot (it should have index %d) and the log before that is gone: "+
			"put the file back, or remove this member from the group and add a new one under a new id", behind.Target, behind.Index)
	}
	_, content, err := s.FileSnapshotStore.Open(meta.ID)
	if err != nil {
		return 0, err
	}
	_, err = install(content, group, s.dir, s.space)
	return meta.Index, errors.Join(err, content.Close())
}

// firstBehind returns a file of the manifest that is missing here or behind it.
func firstBehind(space Space, m *manifest) (*store.FileState, error) {
	local, err := space.Files()
	if err != nil {
		return nil, err
	}
	have := make(map[string]store.FileState, len(local))
	for _, f := range local {
		have[f.Target] = f
	}
	for i, want := range m.Files {
		if got, there := have[want.Target]; !there || got.Index < want.Index {
			return &m.Files[i], nil
		}
	}
	return nil, nil
}
