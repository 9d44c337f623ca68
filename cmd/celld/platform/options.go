package platform

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Defaults of a platform on one machine.
const (
	DefaultHTTP  = "127.0.0.1:8080"
	DefaultAdmin = "127.0.0.1:8081"

	// election is shorter than on real machines: all members share one clock and no
	// network, and a start waits for the elections. A dead leader's cell serves
	// again after two to four seconds.
	election = time.Second
)

// Options is what a platform is made of. Dir and Log are required.
type Options struct {
	Dir      string // may hold other files
	HTTP     string // public API of the first gateway; DefaultHTTP if empty
	Admin    string // operator API; DefaultAdmin if empty
	Replicas int    // nodes of a cell; 0 means as formed, or 3
	Gateways int    // 0 means as formed, or 1
	Fixture  bool   // load the adversarial fixture
	Isolate  bool   // every member a child process
	Binary   string // what Isolate runs; this process's own executable if empty

	Profiles bool // with Isolate: each member tells what it is busy with, see Profilers

	Election   time.Duration // Raft's heartbeat and election timeout; one second if zero
	LogEntries int           // after how many entries Raft's logs are cut; the default of raftfsm if zero
	Log        io.Writer     // JSON lines of this process and of the children
	Level      slog.Level
	Progress   func(text string) // told what is waited for and, at any time, what is down; one call at a time; may be nil
	Clock      func() time.Time  // of the nodes in this process, for tests; nil for time.Now
}

func (o *Options) complete() error {
	if o.Dir == "" || o.Log == nil {
		return errors.New("platform: Dir and Log are required")
	}
	if o.Replicas < 0 || o.Replicas > 7 || o.Gateways < 0 || o.Gateways > 7 {
		return errors.New("a cell has 1 to 7 replicas (--replicas), a platform 1 to 7 gateways (--gateways)")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Dir = dir
	if o.HTTP == "" {
		o.HTTP = DefaultHTTP
	}
	if o.Admin == "" {
		o.Admin = DefaultAdmin
	}
	if a, b := reachable(o.HTTP), reachable(o.Admin); a == b && !strings.HasSuffix(a, ":0") {
		return fmt.Errorf("--http %s and --admin %s are one and the same address; choose another for one of them", o.HTTP, o.Admin)
	}
	if o.Election == 0 {
		o.Election = election
	}
	if say := o.Progress; say == nil {
		o.Progress = func(string) {}
	} else {
		var mu sync.Mutex
		o.Progress = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			say(text)
		}
	}
	if o.Isolate && o.Binary == "" {
		if o.Binary, err = os.Executable(); err != nil {
			return err
		}
	}
	return nil
}
