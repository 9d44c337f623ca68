package raftfsm

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// put writes, or with nil deletes, a key of a bbolt file.
func putKey(t *testing.T, path, bucket string, key, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if value == nil {
			return tx.Bucket([]byte(bucket)).Delete(key)
		}
		return tx.Bucket([]byte(bucket)).Put(key, value)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

// overwrite puts garbage into each page from the given one on.
func overwrite(t *testing.T, path string, from int64) {
	t.Helper()
	size := sizeOf(path)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	garbage := []byte(strings.Repeat("garbage!", int(page)/8))
	for at := from * page; at < size; at += page {
		if _, err := f.WriteAt(garbage, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// A folder that cannot be trusted does not start, does not panic, and says which
// file it is and what to do.
func TestDamagedFolder(t *testing.T) {
	const replace = "Take it out of the cell and add a new node"
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, m *member, dir string)
		want   []string
		whole  bool // nothing is damaged: replacing the member is no way out
	}{
		{"garbage in the log", func(t *testing.T, _ *member, dir string) { overwrite(t, filepath.Join(dir, logFile), 0) }, []string{logFile}, false},
		{"garbage behind the log's head", func(t *testing.T, _ *member, dir string) { overwrite(t, filepath.Join(dir, logFile), 2) }, []string{logFile}, false},
		{"log cut short", func(t *testing.T, _ *member, dir string) {
			if err := os.Truncate(filepath.Join(dir, logFile), 2*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		}, []string{logFile}, false},
		{"log of one byte", func(t *testing.T, _ *member, dir string) {
			if err := os.WriteFile(filepath.Join(dir, logFile), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{logFile}, false},
		{"empty log", func(t *testing.T, _ *member, dir string) {
			if err := os.Truncate(filepath.Join(dir, logFile), 0); err != nil {
				t.Fatal(err)
			}
		}, []string{"holds no log", "never with --init"}, true},
		{"gap in the log", func(t *testing.T, _ *member, dir string) {
			putKey(t, filepath.Join(dir, logFile), "logs", indexKey(3), nil)
		}, []string{logFile, "gap from entry 3 to entry 3"}, false},
		{"beginning cut without a snapshot", func(t *testing.T, _ *member, dir string) {
			putKey(t, filepath.Join(dir, logFile), "logs", indexKey(1), nil)
			putKey(t, filepath.Join(dir, logFile), "logs", indexKey(2), nil)
		}, []string{"begins with entry 3", "reaches to 0", "snapshots"}, false},
		{"garbage in the votes", func(t *testing.T, _ *member, dir string) { overwrite(t, filepath.Join(dir, stableFile), 0) }, []string{stableFile}, false},
		{"votes cut short", func(t *testing.T, _ *member, dir string) {
			if err := os.Truncate(filepath.Join(dir, stableFile), int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		}, []string{stableFile}, false},
		{"empty votes", func(t *testing.T, _ *member, dir string) {
			if err := os.Truncate(filepath.Join(dir, stableFile), 0); err != nil {
				t.Fatal(err)
			}
		}, []string{stableFile, "missing or empty"}, false},
		{"no votes", func(t *testing.T, _ *member, dir string) {
			if err := os.Remove(filepath.Join(dir, stableFile)); err != nil {
				t.Fatal(err)
			}
		}, []string{stableFile, "missing or empty"}, false},
		{"newer format", func(t *testing.T, _ *member, dir string) {
			putKey(t, filepath.Join(dir, stableFile), bucket, []byte(keyFormat), []byte{folderFormat + 1})
		}, []string{"newer celld", "format 2"}, true},
		{"another member's folder", func(t *testing.T, m *member, _ string) { m.id = "id9" }, []string{"another member"}, true},
		{"a folder in place of the log", func(t *testing.T, _ *member, dir string) {
			if err := os.Remove(filepath.Join(dir, logFile)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, logFile), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{logFile}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t, 1, func(cfg *Config) { cfg.Replace = replace })
			m := cl.members[0]
			cl.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
			for i := range 5 {
				cl.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), fmt.Sprint(i)))
			}
			cl.stop(m)
			c.damage(t, m, filepath.Join(m.dir, "raft"))
			err := cl.start(m, false)
			m.group = nil
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if said := strings.Contains(err.Error(), replace); said == c.whole {
				t.Errorf("the way out: %v", err)
			}
			if strings.Contains(err.Error(), "goroutine ") {
				t.Errorf("it tells a stack: %v", err)
			}
		})
	}
}

// With the log cut behind a snapshot, the snapshot is needed.
func TestLostSnapshot(t *testing.T) {
	cl := newCluster(t, 1, func(cfg *Config) { cfg.Limits.TrailingEntries = 1 })
	m := cl.members[0]
	cl.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for i := range 5 {
		cl.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), fmt.Sprint(i)))
	}
	if err := m.group.Snapshot(); err != nil {
		t.Fatal(err)
	}
	cl.stop(m)
	snapshots := filepath.Join(m.dir, "raft", "snapshots")
	if err := os.Rename(snapshots, snapshots+"-away"); err != nil {
		t.Fatal(err)
	}
	err := cl.start(m, false)
	m.group = nil
	if err == nil || !strings.Contains(err.Error(), "snapshot") || !strings.Contains(err.Error(), "put back the folder") {
		t.Fatalf("without its snapshot: %v", err)
	}
	if err := os.RemoveAll(snapshots); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(snapshots+"-away", snapshots); err != nil {
		t.Fatal(err)
	}
	cl.restart(m)
	cl.must(keyed(t, command(t, cmdPut, "t1", put{K: "k"}), "after"))
}

// Two processes do not share a folder.
func TestFolderInUse(t *testing.T) {
	cl := newCluster(t, 1, nil)
	m := cl.members[0]
	cl.leader()
	other := &member{name: m.name, id: m.id, dir: m.dir, files: m.files}
	err := cl.start(other, false)
	if err == nil || !strings.Contains(err.Error(), "open in another process") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a second process in the folder: %v", err)
	}
}

func TestPermissionIsNoDamage(t *testing.T) {
	err := (&Config{Replace: "replace it"}).damaged("log.db", &fs.PathError{Op: "open", Path: "log.db", Err: fs.ErrPermission})
	if !strings.Contains(err.Error(), "must own the folder") || strings.Contains(err.Error(), "replace it") {
		t.Errorf("got %v", err)
	}
}

// The gap that Raft leaves when it installs a snapshot is none.
func TestGapBehindASnapshot(t *testing.T) {
	c := &Config{Dir: "raft"}
	for _, v := range []struct {
		log   stretch
		taken uint64
		good  bool
	}{
		{stretch{}, 0, true}, {stretch{first: 1, last: 9}, 0, true}, {stretch{first: 1001, last: 1010, before: 500}, 1000, true},
		{stretch{first: 1001, last: 1010, before: 500}, 400, false}, {stretch{first: 1001, last: 1010, before: 500}, 999, false},
		{stretch{first: 800, last: 1010}, 1000, true}, {stretch{first: 2, last: 3}, 0, false},
	} {
		if err := c.covered(v.log, v.taken); (err == nil) != v.good {
			t.Errorf("%+v with a snapshot of %d: %v", v.log, v.taken, err)
		}
	}
}
