package room

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/store/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a file system of 1000 bytes of which some are free.
type disk struct {
	free, files atomic.Uint64
	bad         atomic.Bool
}

func (d *disk) usage(string) (Usage, error) {
	if d.bad.Load() {
		return Usage{}, errors.New("no answer")
	}
	return Usage{Free: d.free.Load(), Total: 1000, FreeFiles: d.files.Load(), Files: 1 << 20}, nil
}

func open(t *testing.T, free uint64) (*Room, *disk) {
	t.Helper()
	d := &disk{}
	d.free.Store(free)
	d.files.Store(1 << 19)
	r, err := Open(Config{Dir: "/data", Member: "C2/n1", Reserve: 400, Usage: d.usage})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, d
}

func TestLevelsWithSpareOnTheWayBack(t *testing.T) {
	r, d := open(t, 800)
	for _, step := range []struct {
		free uint64
		want Level
	}{
		{400, Ample}, {399, Short}, {449, Short}, {450, Ample}, // an eighth of the reserve more
		{100, Short}, {99, None}, {149, None}, {150, Short}, {449, Short},
		{0, None}, {1000, Ample}, {0, None}, {400, Short},
	} {
		d.free.Store(step.free)
		if got := r.Look(); got != step.want || r.Level() != got {
			t.Fatalf("%d bytes free: %s, want %s", step.free, got, step.want)
		}
	}
}

func TestInodesCount(t *testing.T) {
	r, d := open(t, 1000)
	for _, step := range []struct {
		files uint64
		want  Level
	}{{1023, Short}, {1100, Short}, {1 << 12, Ample}, {10, None}} {
		d.files.Store(step.files)
		if got := r.Look(); got != step.want {
			t.Fatalf("%d inodes free: %s, want %s", step.files, got, step.want)
		}
	}
}

func TestAwaitIsWokenByAChange(t *testing.T) {
	r, d := open(t, 0)
	if err := r.Err(); !errors.Is(err, ErrFull) || fault.Of(err) != fault.Unavailable || fault.As(err).Retry == 0 {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"C2/n1", "/data", "0 bytes free", "needs 450"} {
		if got := fault.As(r.Err()).Err.Error(); !strings.Contains(got, want) {
			t.Errorf("%q does not name %q", got, want)
		}
		if got := fault.As(r.Err()).Detail; strings.Contains(got, want) {
			t.Errorf("a caller is told %q", got)
		}
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if err := r.Await(ended, Short); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Await(context.Background(), Short) }()
	d.free.Store(200)
	r.Look()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was woken")
	}
}

func TestGoroutineLooks(t *testing.T) {
	r, d := open(t, 1000)
	changed := r.Changed()
	d.free.Store(0)
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("nobody looked")
	}
	if r.Level() != None {
		t.Errorf("the level is %s", r.Level())
	}
}

func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	r, d := open(t, 1000)
	d.free.Store(0)
	d.bad.Store(true)
	if got := r.Look(); got != Ample {
		t.Errorf("the level is %s without a look", got)
	}
	d.bad.Store(false)
	if got := r.Look(); got != None {
		t.Errorf("the level is %s", got)
	}
}

func TestReserveThatIsNeverThere(t *testing.T) {
	d := &disk{}
	if _, err := Open(Config{Dir: "/data", Reserve: 900, Usage: d.usage}); err == nil || !strings.Contains(err.Error(), "--disk-reserve") {
		t.Errorf("got %v", err)
	}
}

func TestNilIsAmple(t *testing.T) {
	var r *Room
	if r.Level() != Ample || r.Look() != Ample || r.Await(context.Background(), Ample) != nil {
		t.Error("a nil room is not ample")
	}
	r.Close()
}

func TestRealFileSystem(t *testing.T) {
	r, err := Open(Config{Dir: t.TempDir(), Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if free, _ := r.Free(); free == 0 || r.Level() != Ample {
		t.Errorf("%d bytes free, %s", free, r.Level())
	}
}
