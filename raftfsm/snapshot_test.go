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

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"celld/store"
)

// behind makes a cluster whose third member has missed entries that are in no
// log any more, and returns the highest index.
func behind(t *testing.T) (*cluster, *member, uint64) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t0"}), "o0")) // is never written again
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	late := c.members[2]
	if c.leader() == late {
		late = c.members[0]
	}
	c.settled(c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1")).Index)
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
	// Beyond the snapshot: what is sent holds these too, and they are skipped.
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t3"}), "o3"))
	index = c.must(keyed(t, command(t, cmdPut, "t1", put{K: "after"}), "c")).Index
	return c, late, index
}

// heal fetches whatever a member lacks from another one.
func (c *cluster) heal(m, from *member) (fetched []string) {
	c.t.Helper()
	all, err := filepath.Glob(m.files.absence("*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range all {
		target := strings.TrimSuffix(filepath.Base(path), ".absent")
		if err := m.files.fetch(testContext(c.t), m.group, target, from); err != nil {
			c.t.Fatalf("fetch %s: %v", target, err)
		}
		fetched = append(fetched, target)
	}
	return fetched
}

// A follower that missed what is in no log any more is sent the group's own file
// alone; the rest it fetches, and only what has changed.
func TestInstallAndFetch(t *testing.T) {
	c, late, index := behind(t)
	leader := c.leader()
	c.restart(late)
	c.settled(index)
	c.same("")
	if err := late.group.Snapshot(); !strings.Contains(fmt.Sprint(err), errAbsences.Error()) {
		t.Errorf("a snapshot with absences: %v", err)
	}
	// While a target is absent, its commands go on, and one that is under way when
	// the file takes its place is not lost.
	during := c.must(keyed(t, command(t, cmdPut, "t2", put{K: "during"}), "e")).Index
	if err := late.group.WaitApplied(testContext(t), during); err != nil {
		t.Fatal(err)
	}
	fetched := c.heal(late, leader)
	if fmt.Sprint(fetched) != "[t1 t2 t3]" {
		t.Errorf("fetched %v, not what was written while it was away", fetched)
	}
	c.same("", "t0", "t1", "t2", "t3")
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
	if err := late.group.Snapshot(); err != nil {
		t.Error(err)
	}
	c.stop(late)
	c.restart(late)
	c.settled(index)
	c.same("", "t0", "t1", "t2", "t3")
}

// Installing fails at the n-th step, for every n: the member stops, and is whole
// after its next start.
func TestInstallFailsAtEveryStep(t *testing.T) {
	c, late, index := behind(t)
	leader := c.leader()
	for fail := 0; ; fail++ {
		step, failed := 0, false
		late.files.atInstall(func(name string) error {
			if step++; step-1 == fail {
				failed = true
				return fmt.Errorf("step %q fails", name)
			}
			return nil
		})
		err := c.start(late, false)
		if err == nil && fail == 0 {
			err = <-late.group.Failed() // the leader sends it to a running member
			c.stop(late)
		} else if err == nil { // nothing failed any more: this start has finished it
			break
		} else {
			late.group = nil
			late.files.close(t)
		}
		if !failed || !strings.Contains(err.Error(), "fails") {
			t.Fatalf("step %d: stopped with %v", fail, err)
		}
	}
	late.files.atInstall(nil)
	c.settled(index)
	c.heal(late, leader)
	c.same("", "t0", "t1", "t2", "t3")
}

func TestStartBehindOwnSnapshot(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	c.settled(c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1")).Index)
	m := c.members[0]
	if err := m.group.Snapshot(); err != nil {
		t.Fatal(err)
	}
	c.stop(m)
	if err := store.Remove(m.files.path("")); err != nil {
		t.Fatal(err)
	}
	m.files = newFiles(t, m.files.dir)
	err := c.start(m, false)
	if err == nil || !strings.Contains(err.Error(), "new id") {
		t.Fatalf("started without the group's own file: %v", err)
	}
	m.group = nil
}

// A copy that is older than what the log has kept is not taken, and a target that
// is written all the time is caught up all the same.
func TestCatchUp(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o1"))
	c.settled(c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "1")).Index)
	leader := c.leader()
	m := c.members[0]
	if m == leader {
		m = c.members[1]
	}
	if err := m.files.Damaged("t1", errors.New("a test")); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_, _ = leader.group.Propose(testContext(t), keyed(t, command(t, cmdPut, "t1", put{K: "hot"}), fmt.Sprint("h", i)))
			}
		}
	}()
	for n := 0; n < 3; n++ {
		before := m.group.Applied()
		if err := m.group.WaitApplied(testContext(t), before+300); err != nil {
			t.Fatal(err)
		}
		c.heal(m, leader)
		if err := m.files.Damaged("t1", errors.New("again")); err != nil {
			t.Fatal(err)
		}
		if err := m.files.forget("t1"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	c.heal(m, leader)
	index, err := leader.group.ReadIndex(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	c.settled(index)
	c.same("", "t1")

	floor := m.group.Floor()
	if floor != 0 {
		t.Errorf("without a snapshot the log reaches back to %d", floor)
	}
	if err := m.group.Snapshot(); err != nil {
		t.Fatal(err)
	}
	f, release, err := m.files.Acquire("t1")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	err = m.group.CatchUp(testContext(t), "t1", f, m.group.Floor()-1, func() error { t.Error("placed"); return nil })
	if !errors.Is(err, ErrTooOld) {
		t.Errorf("a copy from before the snapshot: %v", err)
	}
}

// damage makes an end of the page that a target's items are in.
func (fs *files) damage(t *testing.T, target string) {
	t.Helper()
	f, release, err := fs.Acquire(target)
	if err != nil {
		t.Fatal(err)
	}
	page, size := int64(0), int64(0)
	err = f.View(func(c *store.Conn) error {
		_, err := c.One("SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = 'item'",
			func(r *store.Row) error { page, size = r.ColumnInt64(0), r.ColumnInt64(1); return nil })
		return err
	})
	release()
	if err := errors.Join(err, fs.forget(target)); err != nil {
		t.Fatal(err)
	}
	db, err := os.OpenFile(fs.path(target), os.O_WRONLY, 0) // closed: nothing has it open
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.WriteAt(make([]byte, size), (page-1)*size)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A damaged file makes its target absent and nothing else; the waiter is told
// that the outcome is unknown.
func TestDamagedTargetIsPassedOver(t *testing.T) {
	fs := newFilesFor(t, "t1", "t2")
	f, failed := alone(t, fs)
	f.ApplyBatch([]*raft.Log{logOf(t, 1, command(t, cmdPut, "t1", put{K: "a"}), command(t, cmdPut, "t2", put{K: "a"}))})
	fs.damage(t, "t1")
	got := f.ApplyBatch([]*raft.Log{logOf(t, 2, command(t, cmdPut, "t1", put{K: "b"}), command(t, cmdPut, "t2", put{K: "b"}))})
	if *failed != nil {
		t.Fatalf("the member stopped: %v", *failed)
	}
	results := got[0].([]result)
	if !errors.Is(results[0].err, ErrUnknown) || results[1].err != nil {
		t.Errorf("told %v and %v", results[0].err, results[1].err)
	}
	if fs.Absent() != 1 || fs.rows(t, "t2", "b") != 1 {
		t.Errorf("%d absent, %d rows in the other", fs.Absent(), fs.rows(t, "t2", "b"))
	}
	got = f.ApplyBatch([]*raft.Log{logOf(t, 3, command(t, cmdPut, "t1", put{K: "c"}))})
	if err := got[0].([]result)[0].err; !errors.Is(err, ErrUnknown) {
		t.Errorf("told %v of an absent target", err)
	}
}

// A member whose log can't follow from the snapshot would be sent it for ever.
func TestEndlessInstallationIsNoticed(t *testing.T) {
	var r restored
	for i, want := range []bool{true, true, false} {
		if err := r.again(7); (err == nil) != want {
			t.Errorf("time %d: %v", i+1, err)
		}
	}
	r = restored{}
	for _, index := range []uint64{7, 7, 8, 8, 7, 7} {
		if err := r.again(index); err != nil {
			t.Errorf("%d: %v", index, err)
		}
	}
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

// What a crash left of a snapshot, or of one being sent, goes at the next start.
func TestHalfMadeSnapshotsAreSwept(t *testing.T) {
	dir := t.TempDir()
	half := []string{filepath.Join(dir, "snapshots", "2-9-1.tmp"), filepath.Join(dir, sentPrefix+"1")}
	for _, path := range half {
		if err := os.MkdirAll(filepath.Join(path, "state"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openSnapshots(dir, nil, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	for _, path := range half {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestManifestBytes(t *testing.T) {
	m := &manifest{Version: manifestVersion, Kind: kindSent, Group: "C2", ID: "sending", Index: 9, Files: []store.FileState{
		{Index: 8}, {Target: "t", Epoch: 1, Folder: "f", Index: 7}, {Target: "u", Epoch: 2, Folder: "g", Absent: true},
	}}
	var b bytes.Buffer
	if err := writeManifest(&b, m); err != nil {
		t.Fatal(err)
	}
	golden(t, "manifest", b.Bytes())
	got, err := readManifest(&b)
	if err != nil || got.Index != 9 || got.ID != "sending" || len(got.Files) != 3 || got.Files[1] != m.Files[1] || got.Files[2] != m.Files[2] {
		t.Fatalf("read back %+v, %v", got, err)
	}
}

// More targets than an entry may have commands.
func TestManifestOfManyFiles(t *testing.T) {
	m := &manifest{Version: manifestVersion, Kind: kindLocal, Group: "C2", Files: make([]store.FileState, 100_000)}
	var b bytes.Buffer
	if err := writeManifest(&b, m); err != nil {
		t.Fatal(err)
	}
	if got, err := readManifest(&b); err != nil || len(got.Files) != len(m.Files) {
		t.Fatal(err)
	}
	m.Files = make([]store.FileState, maxFiles+1)
	if err := writeManifest(&b, m); err == nil {
		t.Error("a manifest that nobody can read was written")
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	src := newFilesFor(t, "t1")
	f, _ := alone(t, src)
	f.ApplyBatch([]*raft.Log{logOf(t, 1, command(t, cmdOpen, "", open{Target: "t2"}))})
	s := &snapshots{dir: t.TempDir(), space: src, fsm: f}
	whole := func() []byte {
		b, err := s.toSend(5)
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
			t.Errorf("a %s snapshot was installed", what)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

var _ raft.SnapshotStore = (*snapshots)(nil)

// A target that becomes absent after its index was taken for a snapshot may not have
// it durably: the snapshot is none.
func TestNoSnapshotOfWhatIsLost(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.members[0]
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	snapshot, err := m.group.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.files.Damaged("t1", errors.New("its commit failed")); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Persist(nil); !errors.Is(err, errAbsences) {
		t.Errorf("persisted: %v", err)
	}
}
