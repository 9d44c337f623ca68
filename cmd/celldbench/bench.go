package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"celld/cmd/celldbench/report"
	"celld/cmd/celldbench/target"
)

// common are the flags of all commands.
type common struct {
	Replicas   int    `default:"3" placeholder:"N" help:"Nodes of a cell, and members of the raw Raft group (${default})."`
	Isolate    bool   `help:"Run each node and gateway as a process of its own."`
	Celld      string `default:"bin/celld" placeholder:"FILE" help:"The celld that --isolate runs (${default})."`
	OpenFiles  uint64 `placeholder:"N" help:"Let each process have at most N open files, like ulimit -n."`
	Dir        string `placeholder:"DIR" help:"Where the temporary folder goes; the system's place if empty."`
	Log        string `placeholder:"FILE" help:"Where the platform logs to; nowhere if empty."`
	JSON       bool   `name:"json" xor:"style" help:"Print one JSON document."`
	Markdown   bool   `xor:"style" help:"Print tables in Markdown."`
	Into       string `placeholder:"FILE" help:"Also put the Markdown into the section of FILE that is for this kind of run, as in docs/performance.md."`
	Strict     bool   `help:"End with exit code 3 if a goal was missed."`
	CPUProfile string `name:"cpuprofile" placeholder:"DIR" help:"Write CPU profiles of the measured stretches into DIR, a file for each stretch and process; go tool pprof takes several at once."`
	MemProfile string `name:"memprofile" placeholder:"FILE" help:"Write a profile of this process's allocations at the end."`
}

// Validate is called by the parser.
func (c *common) Validate() error {
	if c.Replicas < 1 || c.Replicas > 7 {
		return errors.New("--replicas is a number from 1 to 7")
	}
	if c.OpenFiles != 0 && c.OpenFiles < 256 {
		return errors.New("--open-files is at least 256")
	}
	return nil
}

// scenario is what a command measures.
type scenario interface {
	// play makes the load and fills in the report. It counts writes in b.tenants.
	play(ctx context.Context, b *bench) error
}

// bench is a run: the platform, and the report that it is to give.
type bench struct {
	*common
	rep      *report.Report
	dir      string
	stderr   io.Writer
	platform *target.Platform
	tenants  *target.Tenants // nil until made
	closers  []func() error
}

var errMissed = errors.New("a goal was missed")

// measure runs a scenario and prints its report, also where calls failed.
func (c *common) measure(ctx context.Context, name string, s scenario, stdout, stderr io.Writer) (err error) {
	if c.OpenFiles != 0 {
		if err := target.LimitFiles(c.OpenFiles); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(c.Dir, "celldbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{common: c, rep: &report.Report{Scenario: name, Setup: s, Machine: report.NewMachine(dir)}, dir: dir, stderr: stderr}
	defer func() { err = errors.Join(err, b.close()) }()
	b.say("starting the platform")
	b.platform, err = target.Start(ctx, target.Options{
		Dir: filepath.Join(dir, "platform"), Replicas: c.Replicas, Isolate: c.Isolate, Celld: c.Celld, Log: c.Log, Profiles: c.CPUProfile,
	})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, b.platform.Close)
	if err := s.play(ctx, b); err != nil {
		return err
	}
	b.say("counting what was written")
	if b.rep.Kept, err = b.tenants.Audit(ctx); err != nil {
		return errors.Join(err, b.print(stdout))
	}
	if err := errors.Join(writeMemProfile(c.MemProfile), b.print(stdout)); err != nil {
		return err
	}
	if n := b.rep.Bad(); n > 0 {
		return fmt.Errorf("%d requests failed or were not made", n)
	}
	if n := b.rep.Missed(); n > 0 && c.Strict {
		return fmt.Errorf("%w (%d of them)", errMissed, n)
	}
	return nil
}

// make makes the tenants of a run.
func (b *bench) make(ctx context.Context, s target.Shape) error {
	b.say("making %d tenants, %d of them with %d invoices each", s.Tenants, s.Active, s.Invoices)
	tenants, founded, err := b.platform.Make(ctx, s, b.say)
	if err != nil {
		return fmt.Errorf("make the tenants: %w", err)
	}
	b.tenants = tenants
	b.closers = append(b.closers, tenants.Close)
	b.rep.Tell(founded.Elapsed.Seconds(), "s", "making %d tenants and their owners through the operator API, %d at a time", s.Tenants, target.Parallel)
	b.rep.Tell(founded.PerSecond(), "/s", "tenants made")
	b.rep.Tell(founded.CPUPerCall().Seconds()*1000, "ms", "CPU of making one")
	return nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.stderr, "celldbench: "+format+"\n", args...)
}

func (b *bench) print(w io.Writer) error {
	var err error
	switch {
	case b.JSON:
		err = b.rep.WriteJSON(w)
	case b.Markdown:
		err = b.rep.Write(w, report.Markdown)
	default:
		err = b.rep.Write(w, report.Text)
	}
	if b.Into != "" {
		err = errors.Join(err, b.replace())
	}
	return err
}

// replace puts the report into the section of a page that is for such a run.
func (b *bench) replace() error {
	var text bytes.Buffer
	if err := b.rep.Write(&text, report.Markdown); err != nil {
		return err
	}
	section := b.rep.Scenario
	if b.rep.Variant != "" {
		section += " " + b.rep.Variant
	}
	if b.Isolate {
		section += " --isolate"
	}
	if b.OpenFiles != 0 {
		section += fmt.Sprintf(" --open-files %d", b.OpenFiles)
	}
	return report.Replace(b.Into, section, text.Bytes())
}

// close ends what was started, the last first.
func (b *bench) close() error {
	var err error
	for i := len(b.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, b.closers[i]())
	}
	b.closers = nil
	return err
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
