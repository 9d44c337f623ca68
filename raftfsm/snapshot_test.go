package raftfsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"celld/store"
)

// behind makes a cluster whose third member has missed entries that are in no
// log any more, and returns the highest index.
func behind(t *testing.T) (*cluster, *member, uint64) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1"))
	late := c.members[2]
	if c.leader() == late {
		late = c.members[0]
	}
	c.stop(late)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t2"}), "o2"))
	for i := range 10 {
		c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), fmt.Sprint("a", i)))
		c.must(keyed(t, command(t, cmdPut, "t2", put{K: "k"}), fmt.Sprint("b", i)))
	}
	index, err := c.leader().group.ReadIndex(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	c.settled(index)
	for _, m := range c.members {
		if m.group != nil {
			if err := m.group.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Beyond the snapshot: the bundle holds these too, and they are skipped.
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t3"}), "o3"))
	index = c.must(keyed(t, command(t, cmdPut, "t1", put{K: "after"}), "c")).Index
	return c, late, index
}

func TestInstallBundle(t *testing.T) {
	c, late, index := behind(t)
	c.restart(late)
	c.settled(index)
	c.same("", "t1", "t2", "t3")
	if n := late.files.rows(t, "t1", "k"); n != 11 {
		t.Errorf("%d of 11 rows", n)
	}
	left, err := filepath.Glob(filepath.Join(late.dir, "raft", "install", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// It goes on from there, and starts again from its own files.
	index = c.must(keyed(t, command(t, cmdPut, "t2", put{K: "later"}), "d")).Index
	c.settled(index)
	c.stop(late)
	c.restart(late)
	c.settled(index)
	c.same("", "t1", "t2", "t3")
}

// Installing fails at the n-th step, for every n: the member stops, and is whole
// after its next start.
func TestInstallFailsAtEveryStep(t *testing.T) {
	c, late, index := behind(t)
	steps := 0
	for fail := 0; ; fail++ {
		late.files.install = func(i int) error {
			steps++
			if i == fail {
				return fmt.Errorf("step %d fails", i)
			}
			return nil
		}
		err := c.start(late, false)
		if err == nil {
			// The first attempt: the leader sends the bundle to a running member.
			select {
			case err = <-late.group.Failed():
			case <-testContext(t).Done():
				t.Fatal("no failure reported")
			}
			c.stop(late)
		} else {
			late.group = nil
			late.files.close(t)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("step %d fails", fail)) {
			t.Fatalf("stopped with %v", err)
		}
		if fail == 2 { // t1, t2, own: the bundle is of three files or more
			break
		}
	}
	late.files.install = nil
	c.restart(late)
	c.settled(index)
	c.same("", "t1", "t2", "t3")
}

func TestStartBehindOwnSnapshot(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	c.settled(c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1")).Index)
	m := c.members[0]
	if err := m.group.Snapshot(); err != nil {
		t.Fatal(err)
	}
	c.stop(m)
	if err := store.Remove(m.files.path("t1")); err != nil {
		t.Fatal(err)
	}
	err := c.start(m, false)
	if err == nil || !strings.Contains(err.Error(), "new id") {
		t.Fatalf("started without a file of its snapshot: %v", err)
	}
	m.group = nil
}

func TestSnapshotWaitsForDurableFiles(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	m := c.members[0]
	bad := errors.New("no sync")
	m.files.onSync = func() error { return bad }
	if err := m.group.Snapshot(); err == nil || !strings.Contains(err.Error(), bad.Error()) {
		t.Fatalf("snapshot of files that are not durable: %v", err)
	}
	if list, err := m.group.stores.snapshots.List(); err != nil || len(list) != 0 {
		t.Fatalf("a snapshot is there: %v, %v", list, err)
	}
	m.files.onSync = nil
}

func TestBundleBytes(t *testing.T) {
	m := &manifest{Version: manifestVersion, Kind: kindManifest, Group: "C2", Index: 9, Files: []store.FileState{{Target: "t", Epoch: 1, Folder: "f", Index: 7}}}
	var b bytes.Buffer
	if err := writeManifest(&b, m); err != nil {
		t.Fatal(err)
	}
	golden(t, "manifest", b.Bytes())
	got, err := readManifest(&b)
	if err != nil || got.Index != 9 || got.Files[0] != m.Files[0] {
		t.Fatalf("read back %+v, %v", got, err)
	}
}

func TestDamagedBundleIsRefused(t *testing.T) {
	src := newFiles(t, t.TempDir())
	t.Cleanup(func() { src.close(t) })
	s := &snapshots{dir: t.TempDir(), space: src, fsm: new(fsm)}
	whole := func() []byte {
		b, err := s.bundle(5, &manifest{Group: "C2"})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		data, err := io.ReadAll(b)
		if err != nil || int64(len(data)) != b.size {
			t.Fatalf("%d bytes of %d: %v", len(data), b.size, err)
		}
		return data
	}()
	try := func(data []byte) error {
		dst := newFiles(t, t.TempDir())
		defer dst.close(t)
		_, err := install(bytes.NewReader(data), "C2", t.TempDir(), dst)
		return err
	}
	if err := try(whole); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for what, data := range map[string][]byte{
		"flipped": flipped, "short": whole[:len(whole)-1], "long": append(bytes.Clone(whole), 0), "empty": nil,
	} {
		if try(data) == nil {
			t.Errorf("a %s bundle was installed", what)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

var _ raft.SnapshotStore = (*snapshots)(nil)
