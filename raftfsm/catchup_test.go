package raftfsm

import (
	"os"
	"testing"

	"github.com/hashicorp/raft"

	"celld/store"
)

// However much the log has for a target, a round of catching up takes a bounded
// part of it, and little of it is left to be moved while apply stands still.
func TestCatchUpIsBounded(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	logs := raft.NewInmemStore()
	const entries, size = 200, 200_000
	text := string(make([]byte, size))
	for index := uint64(1); index <= entries; index++ {
		if err := logs.StoreLog(logOf(t, index, command(t, cmdPut, "t1", put{K: text}))); err != nil {
			t.Fatal(err)
		}
	}
	f.progress.advance(entries, 1)
	open := func(name string) *store.File {
		path := fs.path(name)
		if err := store.Create(path, testSchema("tenant"), store.Control{CellKey: "key"}, 0); err != nil {
			t.Fatal(err)
		}
		file, err := store.Open(path, testSchema("tenant"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		})
		return file
	}
	if reached, err := f.applyLog(logs, "t1", open("round"), 0, entries); err != nil || reached != roundBytes/size+1 {
		t.Errorf("a round reached %d: %v", reached, err)
	}
	file, placed := open("whole"), false
	err := f.catchUp(t.Context(), logs, "t1", file, 0, func() error {
		placed = true
		info, err := os.Stat(file.Path() + "-wal")
		if err == nil && info.Size() > 2*roundBytes+(1<<20) {
			t.Errorf("the WAL has %d bytes", info.Size())
		}
		return err
	})
	if err != nil || *failed != nil || !placed || file.Control().Applied != entries {
		t.Errorf("caught up to %d: %v, %v", file.Control().Applied, err, *failed)
	}
}
