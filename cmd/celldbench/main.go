package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// options is the command line.
type options struct {
	Tenants     int           `default:"100" help:"Tenants to make, each with an owner of its own."`
	Cells       int           `default:"1" help:"Over how many of the two cells the tenants are spread. One by default, since the baseline of writes is one Raft group."`
	Invoices    int           `default:"20" help:"Invoices that each tenant has before the first read."`
	Replicas    int           `default:"3" help:"Nodes of a cell, and members of the raw Raft group."`
	Connections []int         `default:"1,64,256" help:"Numbers of connections, or of callers of raw Raft."`
	Duration    time.Duration `default:"4s" help:"How long each kind of work is measured at each number of connections, all rounds together."`
	Rounds      int           `default:"2" help:"In how many rounds, so that the kinds of work take turns."`
	Warmup      time.Duration `default:"500ms" help:"Load before each slice that is not counted."`
	Only        string        `enum:",reads,writes,baseline" default:"" help:"Only one of reads, writes, baseline; without ratios."`
	Hot         float64       `default:"0" help:"Share of all requests that goes to one tenant, e.g. 0.2."`
	Isolate     bool          `help:"Run each node and gateway as a process of its own."`
	Celld       string        `default:"bin/celld" placeholder:"FILE" help:"The celld to run them with."`
	Dir         string        `placeholder:"DIR" help:"Where the temporary data goes; the system's temporary folder if empty."`
	Log         string        `placeholder:"FILE" help:"Where the platform logs to; nowhere if empty."`
	JSON        bool          `name:"json" help:"Print one JSON document."`
	CPUProfile  string        `name:"cpuprofile" placeholder:"FILE" help:"Write a CPU profile of the measured part."`
	MemProfile  string        `name:"memprofile" placeholder:"FILE" help:"Write a profile of all allocations at the end."`
}

func (o *options) Validate() error {
	switch {
	case o.Tenants < 1 || o.Tenants > 999:
		return errors.New("--tenants is a number from 1 to 999")
	case o.Cells < 1 || o.Cells > 2:
		return errors.New("--cells is 1 or 2")
	case o.Invoices < 1 || o.Rounds < 1:
		return errors.New("--invoices and --rounds are at least 1")
	case o.Replicas < 1 || o.Replicas > 7:
		return errors.New("--replicas is a number from 1 to 7")
	case o.Duration <= 0 || o.Warmup < 0:
		return errors.New("--duration is positive, --warmup not negative")
	case o.Hot < 0 || o.Hot > 1:
		return errors.New("--hot is a share from 0 to 1")
	}
	for _, c := range o.Connections {
		if c < 1 || c > 10_000 {
			return errors.New("--connections are numbers from 1 to 10000")
		}
	}
	return nil
}

func main() {
	var o options
	kong.Parse(&o, kong.Name("celldbench"), kong.Description("Measure a platform against what its machine does at best, in one run."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := bench(ctx, &o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "celldbench:", err)
		os.Exit(1)
	}
}

// bench runs everything and prints the report. A call that failed is an error.
func bench(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.Dir, "celldbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rep := &report{Machine: newMachine(dir)}
	st, err := newStage(ctx, o, dir, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	endProfile, err := startProfile(o.CPUProfile)
	if err != nil {
		return err
	}
	err = errors.Join(st.play(ctx, rep), endProfile())
	if err != nil {
		return err
	}
	if err := writeMemProfile(o.MemProfile); err != nil {
		return err
	}
	if o.JSON {
		err = rep.writeJSON(stdout)
	} else {
		err = rep.writeTable(stdout)
	}
	if n := rep.failed(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d calls failed", n))
	}
	return err
}

func startProfile(path string) (end func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func writeMemProfile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC() // what is counted as in use is then what is reachable
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
