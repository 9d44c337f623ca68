package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// TestMain plays the child process of the tests where it is asked to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		childMain()
		return
	}
	goleak.VerifyTestMain(m)
}

// fakeLife is a life that ends when it is told to.
type fakeLife struct {
	once sync.Once
	done chan struct{}
	err  error
}

func (f *fakeLife) end(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

func (f *fakeLife) ended() <-chan struct{}     { return f.done }
func (f *fakeLife) why() error                 { return f.err }
func (f *fakeLife) stop(context.Context) error { f.end(nil); return nil }
func (f *fakeLife) kill() error                { f.end(errors.New("killed")); return nil }
func (f *fakeLife) pid() int                   { return 42 }

type fakeLaunches struct {
	mu    sync.Mutex
	lives []*fakeLife
	fail  error
}

func (f *fakeLaunches) launch(context.Context) (instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	life := &fakeLife{done: make(chan struct{})}
	f.lives = append(f.lives, life)
	return life, nil
}

func (f *fakeLaunches) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lives)
}

func (f *fakeLaunches) member() *Member {
	return &Member{name: "M", launch: f.launch, logger: slog.New(slog.DiscardHandler),
		changed: func() error { return nil }, onEnd: func(string, error) {}}
}

func TestMemberComesBackAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeLaunches
		m := f.member()
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if m.PID() != 0 || f.count() != 1 {
			t.Errorf("right after its death: pid %d, %d lives", m.PID(), f.count())
		}
		time.Sleep(restartAfter + time.Millisecond) // the bubble's clock, not the machine's
		synctest.Wait()
		if m.PID() != 42 || f.count() != 2 {
			t.Errorf("after a second: pid %d, %d lives", m.PID(), f.count())
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * restartAfter)
		if m.PID() != 0 || f.count() != 2 {
			t.Errorf("after its stop: pid %d, %d lives", m.PID(), f.count())
		}
		if err := m.Kill(); err == nil {
			t.Error("a stopped member can be killed")
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.count() != 3 {
			t.Errorf("started again: %d lives", f.count())
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStopWhileItIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeLaunches
		m := f.member()
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * restartAfter)
		if f.count() != 1 {
			t.Errorf("%d lives", f.count())
		}
	})
}

func TestFirstLaunchFails(t *testing.T) {
	f := fakeLaunches{fail: errors.New("no")}
	m := f.member()
	for range 2 {
		if err := m.Start(t.Context()); !errors.Is(err, f.fail) {
			t.Errorf("got %v", err)
		}
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLaterLaunchesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeLaunches
		m := f.member()
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.mu.Lock()
		f.fail = errors.New("not now")
		f.mu.Unlock()
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * restartAfter)
		f.mu.Lock()
		f.fail = nil
		f.mu.Unlock()
		time.Sleep(2 * restartAfter)
		synctest.Wait()
		if m.PID() != 42 || f.count() != 2 {
			t.Errorf("pid %d, %d lives", m.PID(), f.count())
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A member that never lives for long is started again after 1, 2, 4 seconds and
// so on up to 30; one that has lived for long, after one second.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeLaunches{fail: errors.New("not now")}
		m := f.member()
		m.persist = true
		begun := time.Now()
		var at []time.Duration
		m.onEnd = func(string, error) { at = append(at, time.Since(begun)/time.Second) }
		if err := m.Start(t.Context()); !errors.Is(err, f.fail) {
			t.Errorf("got %v", err)
		}
		time.Sleep(95 * time.Second)
		synctest.Wait()
		if want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}; !slices.Equal(at, want) {
			t.Errorf("launches at %d, want %d", at, want)
		}
		f.mu.Lock()
		f.fail = nil
		f.mu.Unlock()
		time.Sleep(restartMost + steadyAfter)
		synctest.Wait()
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(restartAfter + time.Millisecond)
		synctest.Wait()
		if f.count() != 2 {
			t.Errorf("%d lives", f.count())
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// childMain is the child process of the tests below: it says a line and waits for
// the end of its standard input, or refuses to end.
func childMain() {
	switch os.Args[2] {
	case "fail":
		if _, err := os.Stderr.WriteString("first line\ncelld: the reason\nand the rest\n"); err != nil {
			os.Exit(9)
		}
		os.Exit(3)
	case "wait":
		buf := make([]byte, 1)
		if n, err := os.Stdin.Read(buf); n != 0 || err == nil {
			os.Exit(9)
		}
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDeadChildSaysWhy(t *testing.T) {
	p, err := spawn(self(t), []string{"child", "fail"}, nowhere{})
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended()
	var exit *exec.ExitError
	if !errors.As(p.why(), &exit) || exit.ExitCode() != 3 || !strings.Contains(p.why().Error(), "it said: celld: the reason\nand the rest") {
		t.Errorf("got %v", p.why())
	}
}

func TestChildIsKilledWhenItsTimeIsOver(t *testing.T) {
	p, err := spawn(self(t), []string{"child", "wait"}, nowhere{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.stop(ctx); err == nil {
		t.Error("it was killed and that is no error")
	}
	<-p.ended()
}

func TestChildEndsOnTerm(t *testing.T) {
	p, err := spawn(self(t), []string{"child", "wait"}, nowhere{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(t.Context()); err == nil { // this child has no handler: the signal itself ends it
		t.Error("a child that a signal ended has not stopped in order")
	}
}

// A member that somebody killed did nothing wrong: it is not made to wait.
func TestWasKilled(t *testing.T) {
	for script, want := range map[string]bool{"kill -9 $$": true, "exit 1": false} {
		err := exec.Command("sh", "-c", script).Run()
		if got := wasKilled(fmt.Errorf("it ended: %w", err)); got != want {
			t.Errorf("%s: %v (%v)", script, got, err)
		}
	}
}
