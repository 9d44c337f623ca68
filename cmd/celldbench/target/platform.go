package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"celld/cmd/celld/platform"
)

// Options is what a platform under load is made of.
type Options struct {
	Dir      string // for its data
	Replicas int
	Isolate  bool
	Celld    string // the binary that Isolate runs
	Log      string // file; nowhere if empty
	Profiles string // folder for CPU profiles; none if empty
}

// Platform is a platform under load.
type Platform struct {
	o   Options
	log io.WriteCloser
	p   *platform.Platform
	// The platform's addresses; they outlive a restart.
	http, admin string
}

// logBytes bounds what the log keeps.
const logBytes = 256 << 20

// Start starts a platform on a folder that holds none.
func Start(ctx context.Context, o Options) (*Platform, error) {
	if o.Isolate {
		binary, err := filepath.Abs(o.Celld)
		if err == nil {
			_, err = os.Stat(binary)
		}
		if err != nil {
			return nil, fmt.Errorf("the celld to run: %w", err)
		}
		o.Celld = binary
	}
	if o.Profiles != "" {
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return nil, err
		}
	}
	t := &Platform{o: o, log: discard{}, http: "127.0.0.1:0", admin: "127.0.0.1:0"}
	if o.Log != "" {
		log, err := platform.OpenLog(o.Log, logBytes)
		if err != nil {
			return nil, err
		}
		t.log = log
	}
	if err := t.start(ctx); err != nil {
		return nil, errors.Join(err, t.log.Close())
	}
	return t, nil
}

// discard is a log that nobody reads.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

func (t *Platform) start(ctx context.Context) error {
	p, err := platform.Start(ctx, platform.Options{
		Dir: t.o.Dir, HTTP: t.http, Admin: t.admin, Replicas: t.o.Replicas, Log: t.log,
		Isolate: t.o.Isolate, Binary: t.o.Celld, Profiles: t.o.Profiles != "",
	})
	if err != nil {
		return err
	}
	t.p = p
	c := p.Credentials()
	t.http, t.admin = strings.TrimPrefix(c.Gateway, "http://"), strings.TrimPrefix(c.Admin, "http://")
	return nil
}

// Restart stops the platform in order and starts it again on its data, at the same
// addresses. It says how long each took: the start until all gateways are ready
// and every cell has a leader.
func (t *Platform) Restart(ctx context.Context) (stop, start time.Duration, err error) {
	began := time.Now()
	if err := t.stop(); err != nil {
		return 0, 0, err
	}
	stopped := time.Now()
	if err := t.start(ctx); err != nil {
		return 0, 0, fmt.Errorf("start again: %w", err)
	}
	return stopped.Sub(began), time.Since(stopped), nil
}

// stopWithin is how long the platform may take to stop.
const stopWithin = time.Minute

func (t *Platform) stop() error {
	if t.p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := t.p.Stop(ctx)
	t.p = nil
	return err
}

// Close stops the platform.
func (t *Platform) Close() error { return errors.Join(t.stop(), t.log.Close()) }

// processes are this one and, with Isolate, the members'.
func (t *Platform) processes() []int {
	pids := []int{os.Getpid()}
	if t.o.Isolate && t.p != nil {
		for _, m := range t.p.Members() {
			pids = append(pids, m.PID())
		}
	}
	return pids
}
