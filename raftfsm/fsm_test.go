package raftfsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/fault"
)

// alone is an fsm without Raft.
func alone(t *testing.T, fs *files) (*fsm, *error) {
	t.Helper()
	failed := new(error)
	return &fsm{
		table: fs.table(), space: fs, guard: func(*store.Tx, Definition, *Command) error { return nil },
		progress: newProgress(0, func() uint64 { return 0 }), metrics: newMetrics(&Config{}),
		waiting: func() bool { return true }, fail: func(err error) { *failed = err }, group: "C2", byTarget: make(map[string]*work),
	}, failed
}

func newFilesFor(t *testing.T, targets ...string) *files {
	t.Helper()
	fs := newFiles(t, t.TempDir())
	t.Cleanup(func() { fs.close(t) })
	for _, target := range targets {
		err := store.Create(fs.path(target), testSchema("tenant"), store.Control{CellKey: "key"}, 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

func logOf(t *testing.T, index uint64, commands ...Command) *raft.Log {
	t.Helper()
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: assembled(t, commands)}
}

func TestOwnCommandsStandBetween(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	answers := f.ApplyBatch([]*raft.Log{
		logOf(t, 10, command(t, cmdPut, "t1", put{K: "a"}), command(t, cmdPut, "t2", put{K: "a"})),
		{Index: 11, Term: 1, Type: raft.LogConfiguration},
		logOf(t, 12, command(t, cmdOpen, "", open{Target: "t2"})),
		logOf(t, 13, command(t, cmdPut, "t2", put{K: "b"}), command(t, cmdPut, "t1", put{K: "b"}), command(t, cmdPut, "t1", put{K: "c"})),
	})
	if *failed != nil {
		t.Fatal(*failed)
	}
	if err := answers[0].([]result)[1].err; fault.Of(err) != fault.Moved {
		t.Errorf("before its target was opened: %v", err)
	}
	if answers[1] != nil {
		t.Errorf("a configuration was answered with %v", answers[1])
	}
	for i, r := range answers[3].([]result) {
		if r.err != nil || r.outcome.Index != 13 {
			t.Errorf("command %d of entry 13: %+v", i, r)
		}
	}
	if ctl := fs.control(t, "t1"); ctl.Applied != 13 || ctl.Sequence != 3 {
		t.Errorf("t1 has %+v", ctl)
	}
	if got := f.progress.applied.Load(); got != 13 {
		t.Errorf("applied %d", got)
	}
}

// Applied again, entries that the file holds change nothing, and a waiting
// command's key row answers for it.
func TestSkippedEntries(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	entry5 := logOf(t, 5, keyed(t, command(t, cmdPut, "t1", put{K: "a", V: 3}), "k"), command(t, cmdPut, "t1", put{K: "a"}))
	f.ApplyBatch([]*raft.Log{entry5})
	content := fs.content(t, "t1")
	reused := keyed(t, command(t, cmdPut, "t1", put{K: "a", V: 4}), "k")
	answers := f.ApplyBatch([]*raft.Log{entry5, logOf(t, 4, reused)})
	if *failed != nil {
		t.Fatal(*failed)
	}
	results := answers[0].([]result)
	var v int64
	if r := results[0]; r.err != nil || !r.outcome.Replayed || r.outcome.Into(&v) != nil || v != 3 {
		t.Errorf("with a key: %+v", r)
	}
	if r := results[1]; !errors.Is(r.err, ErrUnknown) {
		t.Errorf("without: %+v", r)
	}
	if r := answers[1].([]result)[0]; !errors.Is(r.err, ErrKeyReused) {
		t.Errorf("with another's key: %+v", r)
	}
	if got := fs.content(t, "t1"); got != content {
		t.Errorf("content\n%s\nbecame\n%s", content, got)
	}
}

// A batch breaks at its n-th command, for every n, and is applied again from the
// start, as after a crash: the end is the same, and every effect is there once.
func TestBreakAtEveryCommand(t *testing.T) {
	const commands = 12
	batch := func() []*raft.Log {
		var logs []*raft.Log
		for i := range commands {
			target := fmt.Sprintf("t%d", i%3)
			cmd := command(t, cmdFail, target, put{K: fmt.Sprint(i)})
			cmd.At = int64(1000 - i) // the clock goes back; time must not
			logs = append(logs, logOf(t, uint64(i+1), cmd))
		}
		return logs
	}
	want := ""
	for n := commands; n >= 0; n-- { // the first one does not break
		fs := newFilesFor(t, "t0", "t1", "t2")
		var broken atomic.Bool
		broken.Store(n == commands)
		fs.handler = func(tx *store.Tx, c *Command) error {
			var b put
			if err := Decode(c.Body, &b); err != nil {
				return err
			}
			if err := tx.Query("INSERT INTO item (k, v, at) VALUES (?, ?, ?)", nil, b.K, int64(tx.Index), tx.Now); err != nil {
				return err
			}
			if b.K == fmt.Sprint(n) && broken.CompareAndSwap(false, true) {
				return errors.New("breaks here")
			}
			return nil
		}
		f, failed := alone(t, fs)
		f.ApplyBatch(batch())
		if (*failed != nil) != (n < commands) {
			t.Fatalf("broken at %d: failure %v", n, *failed)
		}
		if *failed != nil {
			if answers := f.ApplyBatch(batch()); !errors.Is(answers[0].(error), errStopped) {
				t.Fatalf("a stopped member answered %v", answers[0])
			}
			f, failed = alone(t, fs)
			if f.ApplyBatch(batch()); *failed != nil {
				t.Fatal(*failed)
			}
		}
		got := fs.content(t, "t0") + fs.content(t, "t1") + fs.content(t, "t2")
		if want == "" {
			want = got
		}
		if got != want {
			t.Fatalf("broken at %d:\n%s\nwant\n%s", n, got, want)
		}
		for target, last := range map[string]uint64{"t0": 10, "t1": 11, "t2": 12} {
			if ctl := fs.control(t, target); ctl.Applied != last || ctl.Sequence != 4 {
				t.Fatalf("broken at %d: %s has %+v", n, target, ctl)
			}
		}
	}
}

func TestGuardComesFirst(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	f.ApplyBatch([]*raft.Log{logOf(t, 1, keyed(t, command(t, cmdPut, "t1", put{K: "a"}), "k"))})
	fenced := fault.New(fault.Fenced, "frozen", "")
	f.guard = func(tx *store.Tx, d Definition, c *Command) error {
		if d.Name != "put" || tx.Index != 2 {
			t.Errorf("guard asked about %s at %d", d.Name, tx.Index)
		}
		return fmt.Errorf("wrapped: %w", fenced)
	}
	answers := f.ApplyBatch([]*raft.Log{logOf(t, 2, keyed(t, command(t, cmdPut, "t1", put{K: "a"}), "k"))})
	if r := answers[0].([]result)[0]; !errors.Is(r.err, fenced) || *failed != nil {
		t.Errorf("behind the fence: %+v, %v", r, *failed)
	}
}

func TestProgressPassesSilentEntries(t *testing.T) {
	commit := uint64(0)
	p := newProgress(0, func() uint64 { return commit })
	store := func(index uint64, kind raft.LogType) { p.stored(&raft.Log{Index: index, Type: kind}) }
	store(1, raft.LogConfiguration)
	store(2, raft.LogNoop)
	store(3, raft.LogCommand)
	store(4, raft.LogNoop)
	store(5, raft.LogBarrier)
	p.advance(1, 1)
	if p.has(2) {
		t.Error("a silent entry counts before it is committed")
	}
	commit = 5
	for index, want := range map[uint64]bool{1: true, 2: true, 3: false, 5: false} {
		if p.has(index) != want {
			t.Errorf("has %d is not %v", index, want)
		}
	}
	p.advance(3, 1)
	if !p.has(5) || p.has(6) {
		t.Error("the silent tail does not count")
	}
	// Another leader replaces the tail.
	store(4, raft.LogCommand)
	commit = 4
	if p.has(4) || p.has(5) {
		t.Error("what was replaced still counts")
	}
	p.seen(&raft.Log{Index: 6, Type: raft.LogNoop})
	p.seen(&raft.Log{Index: 5, Type: raft.LogNoop})
	p.seen(&raft.Log{Index: 5, Type: raft.LogNoop})
	p.cutFrom(6)
	if fmt.Sprint(p.silent) != "[5]" {
		t.Errorf("silent are %v", p.silent)
	}
}

// recentLogs against a map that forgets nothing: what it has is right, and it
// stays within its bound.
func TestRecentLogs(t *testing.T) {
	r := new(recentLogs)
	all := make(map[uint64][]byte)
	random := rand.New(rand.NewPCG(1, 2))
	next := uint64(1)
	for range 20_000 {
		switch random.IntN(50) {
		case 0: // the tail is replaced
			low := next - min(next-1, uint64(random.IntN(20)))
			r.drop(low, next-1)
			for i := low; i < next; i++ {
				delete(all, i)
			}
			next = low
		case 1: // the head is cut
			r.drop(0, next/2)
		default:
			data := make([]byte, random.IntN(100_000))
			all[next] = data
			r.add(&raft.Log{Index: next, Data: data})
			next++
		}
		var l raft.Log
		at := max(1, next-min(next, uint64(random.IntN(700))))
		if r.get(at, &l) && (l.Index != at || len(l.Data) != len(all[at])) {
			t.Fatalf("entry %d is %d with %d bytes, not %d", at, l.Index, len(l.Data), len(all[at]))
		}
		sum := 0
		for i := range r.ring {
			sum += len(r.ring[i].Data)
		}
		if sum != r.bytes || sum > recentBytes {
			t.Fatalf("%d bytes counted, %d kept", r.bytes, sum)
		}
	}
	if next > 1 && !r.get(next-1, new(raft.Log)) {
		t.Error("the latest entry is not kept")
	}
}
