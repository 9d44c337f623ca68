package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// held counts the descriptors of this process that lie below dir.
func held(t testing.TB, dir string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

func testFiles(t testing.TB, dir string, n int) []string {
	t.Helper()
	paths := make([]string, n)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprint("u", i), "1-0", "tenant.db")
		if err := Create(paths[i], testSchema, testControl, 1); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func (d *Descriptors) taken() (used, committed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used, d.committed
}

func (d *Descriptors) expect(t testing.TB, used int) {
	t.Helper()
	if got, _ := d.taken(); got != used {
		t.Errorf("%d descriptors are taken, want %d", got, used)
	}
}

func touch(t testing.TB, h *Handles, key int, paths []string) {
	t.Helper()
	f, release, err := h.Acquire(fmt.Sprint(key), paths[key])
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := f.View(func(c *Conn) error { return c.Query("SELECT count(*) FROM note", nil) }); err != nil {
		t.Error(err)
	}
}

func TestLimitsOfOpenFiles(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		max   int // of descriptors; 0 for an error
	}{{256, 0}, {279, 0}, {280, 24}, {1024, 768}, {4096, 3072}, {20_000, mostFiles * perFile}, {1 << 40, mostFiles * perFile}} {
		d, err := descriptorsOf(c.limit)
		switch {
		case c.max == 0:
			if err == nil || !strings.Contains(err.Error(), "ulimit -n") {
				t.Errorf("of %d: %v", c.limit, err)
			}
		case err != nil || d.max != c.max || uint64(d.max+d.spill) > c.limit-128:
			t.Errorf("of %d: %+v, %v", c.limit, d, err)
		}
	}
	// Six nodes, each with its cell's file and its tenants'.
	d, err := descriptorsOf(1024)
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for ; err == nil; nodes++ {
		_, one := d.join(1, nil)
		_, many := d.join(1<<40, nil)
		err = errors.Join(one, many)
	}
	if nodes < 7 || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("node %d: %v", nodes, err)
	}
}

// What is counted is what the process has open, to the last one, after errors too.
func TestDescriptorsAreCountedExactly(t *testing.T) {
	dir := t.TempDir()
	paths := testFiles(t, dir, 6)
	d := newDescriptors(60, 10)
	h := testHandles(t, testSchema, 0, d)
	check := func(want int) {
		t.Helper()
		d.expect(t, want)
		if got := held(t, dir); got != want {
			t.Errorf("%d descriptors are open, want %d", got, want)
		}
	}
	for i := range 4 {
		touch(t, h, i, paths)
	}
	check(4 * perFile) // no reader for a short read
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var pins []*Pin
	for i := range 4 {
		p, err := f.Pin()
		if err != nil {
			t.Fatal(err)
		}
		pins = append(pins, p)
		check(4*perFile + (i+1)*perReader)
	}
	for _, p := range pins {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	check(4*perFile + keepReaders*perReader + 2) // two parked
	release()

	if _, _, err := h.Acquire("missing", filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file was opened")
	}
	if err := os.WriteFile(paths[4], []byte("this is no database, and says so at some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Acquire("4", paths[4]); !IsBad(err) {
		t.Error("a bad file:", err)
	}
	newer := &Schema{Kind: "tenant", Migrations: append(testSchema.Migrations, "SELECT 1;")}
	if err := errors.Join(Remove(paths[5]), Create(paths[5], newer, testControl, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Acquire("5", paths[5]); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Error("a newer file:", err)
	}
	check(4*perFile + keepReaders*perReader + 2)
	h.Forget("0")
	check(3 * perFile)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	check(0)
	if _, committed := d.taken(); committed != 0 {
		t.Errorf("%d descriptors are promised to nobody", committed)
	}
}

// An idle node gives up what a busy one needs, but for what it is promised.
func TestBusyHandlesGetWhatIdleOnesDoNotUse(t *testing.T) {
	const files = 40
	paths := testFiles(t, t.TempDir(), files)
	d := newDescriptors(files*perFile, 0)
	idle, busy := testHandles(t, testSchema, 0, d), testHandles(t, testSchema, 0, d)
	var closing []func() error
	closing = append(closing, idle.Close, busy.Close)
	defer func() {
		for _, end := range closing {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}()
	other := testFiles(t, t.TempDir(), files)
	for i := range files {
		touch(t, idle, i, paths)
	}
	if n := idle.Open(); n < files-leastFiles-2 {
		t.Errorf("alone it has %d of %d files open", n, files)
	}
	for i := range files {
		touch(t, busy, i, other)
	}
	promised := leastFiles*perFile + keepReaders*perReader
	if n := idle.Open(); n < 2 || n*perFile > promised {
		t.Errorf("the idle one keeps %d files", n)
	}
	if n := busy.Open(); n < files-2-leastFiles {
		t.Errorf("the busy one keeps %d files", n)
	}
	if !idle.isOpen(fmt.Sprint(files-1)) || idle.isOpen("0") {
		t.Error("not the files that were used last are kept")
	}
	late := testHandles(t, testSchema, 0, d) // a node that is added while all is in use
	closing = append(closing, late.Close)
	third := testFiles(t, t.TempDir(), leastFiles)
	for i := range third {
		touch(t, late, i, third)
	}
	if n := late.Open(); n != leastFiles {
		t.Errorf("a later one has %d files open", n)
	}
	if used, _ := d.taken(); used > d.max {
		t.Errorf("%d descriptors of %d are taken", used, d.max)
	}
}

func TestSpareReadersGoBeforeFiles(t *testing.T) {
	paths := testFiles(t, t.TempDir(), 4)
	d := newDescriptors(100, 0)
	h := testHandles(t, testSchema, 0, d)
	d.max, d.committed, h.share.least = 3*perFile+perReader+1, 0, 0
	for i := range 3 {
		touch(t, h, i, paths)
	}
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Scan(t.Context(), func(*Conn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	release()
	d.expect(t, 3*perFile+perReader)
	f, release, err = h.Acquire("1", paths[1])
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Pin() // takes the other one's reader
	if err != nil {
		t.Fatal(err)
	}
	if n := h.Open(); n != 3 {
		t.Errorf("%d files are open", n)
	}
	q, err := f.Pin() // takes the file that was used longest ago
	if err != nil || h.isOpen("2") {
		t.Errorf("a second pin: %v; file 2 is open: %v", err, h.isOpen("2"))
	}
	if err := errors.Join(p.Close(), q.Close()); err != nil {
		t.Error(err)
	}
	release()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	d.expect(t, 0)
}

// With all files in use a long read gets a reader from what is set aside for that,
// or is refused; short reads and writes never are.
func TestLongReadsAreRefusedRatherThanRunOut(t *testing.T) {
	paths := testFiles(t, t.TempDir(), 1)
	d := newDescriptors(leastFiles*perFile+keepReaders*perReader, perReader)
	h := testHandles(t, testSchema, 0, d)
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var pins []*Pin
	for err == nil {
		var p *Pin
		if p, err = f.Pin(); err == nil {
			pins = append(pins, p)
		}
	}
	if !errors.Is(err, ErrDescriptors) || len(pins) != 13 {
		t.Errorf("after %d pins: %v", len(pins), err)
	}
	if err := f.Scan(t.Context(), func(*Conn) error { return nil }); !errors.Is(err, ErrDescriptors) {
		t.Error("a scan:", err)
	}
	if err := insert(f, 1, "a"); err != nil {
		t.Error(err)
	}
	f.missed.Store(patience)
	f.mu.Lock() // so that the View wants a reader
	var wg sync.WaitGroup
	wg.Go(func() {
		if n := count(t, f); n != 1 {
			t.Errorf("%d notes", n)
		}
	})
	for queued := false; !queued; {
		f.rmu.Lock()
		queued = f.views > 0
		f.rmu.Unlock()
	}
	f.mu.Unlock()
	wg.Wait()
	if err := f.Checkpoint(); err != nil {
		t.Error(err)
	}
	for _, p := range pins {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Scan(t.Context(), func(*Conn) error { return nil }); err != nil {
		t.Error(err)
	}
	release()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	d.expect(t, 0)
}

// Whatever several Handles do at a time, the bound holds, nobody waits for ever, no
// file in use is closed, and at the end nothing is left.
func TestDescriptorsUnderRandomUse(t *testing.T) {
	const files, nodes, workers = 12, 3, 3
	dir, round := t.TempDir(), 0
	var paths [][]string
	for n := range nodes {
		paths = append(paths, testFiles(t, filepath.Join(dir, fmt.Sprint(n)), files))
	}
	rapid.Check(t, func(r *rapid.T) {
		round++
		promised := nodes * (leastFiles*perFile + keepReaders*perReader)
		d := newDescriptors(promised+rapid.IntRange(0, 2*perFile).Draw(r, "free"), 2*workers*nodes*perReader)
		type step struct{ node, file, what int }
		plans := make([][]step, workers*nodes)
		for w := range plans {
			for range rapid.IntRange(1, 8).Draw(r, "steps") {
				plans[w] = append(plans[w], step{w % nodes, rapid.IntRange(0, files-1).Draw(r, "file"), rapid.IntRange(0, 4).Draw(r, "what")})
			}
		}
		var handles []*Handles
		for range nodes {
			h := testHandles(t, testSchema, 0, d)
			if rapid.Bool().Draw(r, "behind") {
				h.WriteBehind(commitNever, func(_ string, err error) { t.Error(err) })
			}
			handles = append(handles, h)
		}
		var wg sync.WaitGroup
		for w, plan := range plans {
			wg.Go(func() {
				for i, s := range plan {
					if err := use(t, handles[s.node], fmt.Sprint(s.file), paths[s.node][s.file], s.what, fmt.Sprint(round, "-", w, "-", i)); err != nil {
						t.Error(err)
					}
					if used, _ := d.taken(); used > d.max+d.spill {
						t.Errorf("%d descriptors of %d are taken", used, d.max)
					}
				}
			})
		}
		wg.Wait()
		used, _ := d.taken()
		// A reader that opens while another one closes may have taken two for one.
		if open := held(t, dir); open > used || used > open+workers*nodes {
			t.Errorf("%d descriptors are open, %d are taken", open, used)
		}
		for _, h := range handles {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
		if used, committed := d.taken(); used != 0 || committed != 0 || held(t, dir) != 0 {
			t.Errorf("%d descriptors are taken, %d promised, %d open after all", used, committed, held(t, dir))
		}
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

func use(t *testing.T, h *Handles, key, path string, what int, body string) error {
	if what == 4 {
		h.Forget(key)
		return h.Sync(nil)
	}
	f, release, err := h.Acquire(key, path)
	if err != nil {
		return err
	}
	defer release()
	look := func(c *Conn) error { return c.Query("SELECT count(*) FROM note", nil) }
	switch what {
	case 0:
		return f.View(look)
	case 1:
		return insert(f, 1, body)
	case 2:
		return f.Scan(t.Context(), look)
	default:
		p, err := f.Pin()
		if err != nil {
			return err
		}
		return errors.Join(p.Read(nil, look), p.Close())
	}
}

// A file counts as closed when the readers that somebody else closes are closed too.
func TestCloseWaitsForReadersThatOthersClose(t *testing.T) {
	paths := testFiles(t, t.TempDir(), 1)
	d := newDescriptors(100, 0)
	h := testHandles(t, testSchema, 0, d)
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	f.rmu.Lock()
	f.going = 1 // as closeFree does before it closes one
	f.rmu.Unlock()
	release()
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	for { // until Close waits for it
		f.rmu.Lock()
		begun := f.closed
		f.rmu.Unlock()
		if begun {
			break
		}
		runtime.Gosched()
	}
	select {
	case <-closed:
		t.Fatal("it did not wait")
	default:
	}
	f.rmu.Lock()
	f.going = 0
	f.rmu.Unlock()
	f.viewed.Broadcast()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	d.expect(t, 0)
}

// Readers that somebody takes just as they are to be closed hide no others.
func TestSpareReadersAreFoundBehindTakenOnes(t *testing.T) {
	paths := testFiles(t, t.TempDir(), 1)
	d := newDescriptors(100, 0)
	h := testHandles(t, testSchema, 0, d)
	f, release, err := h.Acquire("0", paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		release()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := f.Scan(t.Context(), func(*Conn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		h.share.spare(&File{share: h.share}, true) // as it was before its readers were taken
	}
	if !h.share.closeSpares() {
		t.Error("a reader that nobody uses was not found")
	}
	if h.share.closeSpares() || len(h.share.spares) > 0 {
		t.Error("something else was found")
	}
}
