package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestWhoFindsAllFilesInUseWaitsForOne(t *testing.T) {
	dir := t.TempDir()
	paths := make([]string, 4)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("u", i), "1-0", "tenant.db")
		if err := Create(paths[i], testSchema, testControl, 1); err != nil {
			t.Fatal(err)
		}
	}
	h := testHandles(t, testSchema, 2, nil)
	var held []func()
	for k := range 2 {
		_, release, err := h.Acquire(fmt.Sprint(k), paths[k])
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	// Two want the same file, one another; all of them get theirs.
	var waiting sync.WaitGroup
	for _, k := range []int{2, 2, 3} {
		waiting.Go(func() {
			f, release, err := h.Acquire(fmt.Sprint(k), paths[k])
			if err != nil {
				t.Error(err)
				return
			}
			if f.Path() != paths[k] {
				t.Errorf("asked for %s, got %s", paths[k], f.Path())
			}
			if n := h.Open(); n > 2 {
				t.Errorf("%d files open, bound is 2", n)
			}
			release()
		})
	}
	for _, release := range held {
		release()
	}
	waiting.Wait()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestHandlesStayBoundedAndNeverCloseAFileInUse(t *testing.T) {
	dir := t.TempDir()
	const files, bound = 12, 4
	paths := make([]string, files)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("u", i), "1-0", "tenant.db")
		if err := Create(paths[i], testSchema, testControl, 1); err != nil {
			t.Fatal(err)
		}
	}
	h := testHandles(t, testSchema, bound, nil)
	held, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				k := 1 + (i*7+w)%(files-1)
				f, release, err := h.Acquire(fmt.Sprint(k), paths[k])
				if err != nil {
					t.Error(err)
					return
				}
				if err := insert(f, uint64(i), fmt.Sprint(w, "-", i)); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	wg.Wait()
	if n := h.Open(); n > bound {
		t.Errorf("%d files open, bound is %d", n, bound)
	}
	for k := 1; k < files; k++ { // most of them are closed by now
		index, known := h.Applied(fmt.Sprint(k))
		f, err := Open(paths[k], testSchema)
		if err != nil {
			t.Fatal(err)
		}
		if !known || h.behind == nil && index != f.Control().Applied {
			t.Errorf("file %d: applied index %d (known: %v), the file has %d", k, index, known, f.Control().Applied)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := insert(held, 1, "still open"); err != nil {
		t.Error("a file in use was closed:", err)
	}
	if err := h.Sync(nil); err != nil {
		t.Error(err)
	}
	release()
	h.Forget("0")
	if _, release, err := h.Acquire("0", paths[0]); err != nil {
		t.Error(err)
	} else {
		release()
	}
	total := 0
	for k := 1; k < files; k++ {
		f, release, err := h.Acquire(fmt.Sprint(k), paths[k])
		if err != nil {
			t.Fatal(err)
		}
		total += count(t, f)
		release()
	}
	if total != 800 {
		t.Errorf("%d notes, want 800", total)
	}
	if _, _, err := h.Acquire("missing", filepath.Join(dir, "missing", "tenant.db")); err == nil {
		t.Error("a missing file was opened")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := h.Acquire("0", paths[0]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("acquire after close: %v", err)
	}
}
