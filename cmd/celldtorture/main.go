package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"celld/store/failpoint"
)

// options is the command line.
type options struct {
	Cycles  int           `default:"300" help:"How many times the platform is broken."`
	For     time.Duration `default:"0" help:"End after this time even if cycles are left; 0 for no limit."`
	Seed    uint64        `default:"0" help:"Seed of what is chosen by chance; 0 for a new one, which is printed."`
	Tenants int           `default:"6" help:"Tenants that are written to, one writer and one owner each."`
	Faults  []string      `default:"kill,failpoint,away,damage" enum:"kill,failpoint,away,damage,power" help:"Kinds of faults: ${enum}."`
	Power   bool          `help:"Power cuts too, as if --faults named them: needs root and loop devices."`
	Celld   string        `default:"bin/celld-failpoints" placeholder:"FILE" help:"A celld built with -tags failpoints."`
	Dir     string        `placeholder:"DIR" help:"Where the platform's folder is made; the system's temporary folder if empty."`
}

// Validate implements kong's validation.
func (o *options) Validate() error {
	if o.Cycles < 1 || o.Tenants < 1 || o.Tenants > 100 || o.For < 0 {
		return errors.New("--cycles is at least 1, --tenants a number from 1 to 100, --for not negative")
	}
	if o.power() && os.Geteuid() != 0 {
		return errors.New("power cuts need root: file systems are mounted for them")
	}
	return nil
}

// power tells whether the nodes lie on file systems whose power can be cut.
func (o *options) power() bool { return o.Power || slices.Contains(o.Faults, "power") }

func main() {
	var o options
	kong.Parse(&o, kong.Name("celldtorture"), kong.Description("Break a platform over and over and count what was acknowledged."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, &o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "celldtorture:", err)
		os.Exit(1)
	}
}

// run makes a platform, breaks it and reports. The folder stays if it found
// anything.
func run(ctx context.Context, o *options, out io.Writer) (err error) {
	binary, err := filepath.Abs(o.Celld)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.Dir, "celldtorture-")
	if err != nil {
		return err
	}
	points := filepath.Join(dir, "failpoints")
	if err := os.Mkdir(points, 0o700); err != nil {
		return err
	}
	if err := os.Setenv(failpoint.Variable, points); err != nil { // children inherit it
		return err
	}
	disks, err := newDisks(dir, o.power())
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, disks.close())
		if err != nil {
			fmt.Fprintf(out, "everything is left in %s\n", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	w, err := newWorld(ctx, o, binary, dir)
	if err != nil {
		return err
	}
	w.disks, w.points = disks, points
	defer func() { err = errors.Join(err, w.close()) }()
	t := newTorture(o, w, out)
	return t.play(ctx)
}
