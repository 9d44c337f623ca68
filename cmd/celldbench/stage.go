package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"
)

// kind is a kind of work that is measured.
type kind int

const (
	bareHandler kind = iota
	reads
	rawRaft
	writes
)

func (k kind) String() string {
	return [...]string{"bare handler", "reads", "raw Raft", "writes"}[k]
}

// kinds are what is measured, in the order of their turns: each next to what it
// is compared with.
func kinds(only string) []kind {
	switch only {
	case "reads":
		return []kind{reads}
	case "writes":
		return []kind{writes}
	case "baseline":
		return []kind{bareHandler, rawRaft}
	}
	return []kind{bareHandler, reads, rawRaft, writes}
}

// stage is everything that takes part in a run.
type stage struct {
	o        *options
	stderr   io.Writer
	platform *platformUnderTest
	product  *product
	bare     *bare
	raft     *rawGroup
	closers  []func() error
}

func newStage(ctx context.Context, o *options, dir string, stderr io.Writer) (st *stage, err error) {
	st = &stage{o: o, stderr: stderr}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	st.say("starting the platform")
	if st.platform, err = startPlatform(ctx, o, filepath.Join(dir, "platform")); err != nil {
		return st, err
	}
	st.closers = append(st.closers, st.platform.close)
	st.say("making %d tenants with %d invoices each", o.Tenants, o.Invoices)
	if st.product, err = newProduct(ctx, st.platform.access(), shape{o.Tenants, o.Cells, o.Invoices}, o.Hot); err != nil {
		return st, err
	}
	if st.bare, err = serveBare(st.product.sample, slog.New(slog.NewTextHandler(stderr, nil))); err != nil {
		return st, err
	}
	st.closers = append(st.closers, st.bare.close)
	if st.raft, err = startRaw(ctx, filepath.Join(dir, "raw"), o.Replicas); err != nil {
		return st, err
	}
	st.closers = append(st.closers, st.raft.close)
	return st, nil
}

func (st *stage) say(format string, args ...any) {
	fmt.Fprintf(st.stderr, "celldbench: "+format+"\n", args...)
}

// close ends what was started, the last first.
func (st *stage) close() error {
	var err error
	for i := len(st.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, st.closers[i]())
	}
	st.closers = nil
	return err
}

// play measures everything and fills in the report.
func (st *stage) play(ctx context.Context, rep *report) error {
	o := st.o
	rep.Setup = setup{
		Tenants: o.Tenants, Cells: o.Cells, Replicas: o.Replicas, Invoices: o.Invoices, Hot: o.Hot, Isolated: o.Isolate,
		Seconds: o.Duration.Seconds(), Rounds: o.Rounds, ReadBytes: len(st.product.sample), EntryBytes: rawEntryBytes,
		CPUIncludes: "user and system time of this process, which holds the load generator and all members",
	}
	if o.Isolate {
		rep.Setup.CPUIncludes = "user and system time of this process, which holds the load generator, and of all members' processes"
	}
	var acknowledged uint64
	for _, c := range o.Connections {
		rounds := map[kind][]*result{}
		failedWarm := map[kind]uint64{}
		for round := range o.Rounds {
			for _, k := range kinds(o.Only) {
				st.say("c=%d, round %d of %d: %s", c, round+1, o.Rounds, k)
				warm, measured, err := st.slice(ctx, k, c)
				if err != nil {
					return fmt.Errorf("%s at c=%d: %w", k, c, err)
				}
				rounds[k] = append(rounds[k], measured)
				failedWarm[k] += warm.failed
				if measured.firstErr == nil {
					measured.firstErr = warm.firstErr
				}
				if k == writes {
					acknowledged += warm.good() + measured.good()
				}
			}
		}
		rep.add(c, rounds, failedWarm, kinds(o.Only))
	}
	if rep.failed() > 0 {
		return nil // what is unknown can't be counted
	}
	rep.Setup.WritesKept = acknowledged
	return st.product.audit(ctx, acknowledged)
}

// slice is one kind's turn.
func (st *stage) slice(ctx context.Context, k kind, c int) (warm, measured *result, err error) {
	s := slice{warmup: st.o.Warmup, duration: st.o.Duration / time.Duration(st.o.Rounds), cpu: st.platform.cpu}
	for range c {
		s.callers = append(s.callers, st.caller(k))
	}
	warm, measured, err = s.run(ctx)
	for _, c := range s.callers {
		err = errors.Join(err, c.close())
	}
	return warm, measured, err
}

func (st *stage) caller(k kind) caller {
	switch k {
	case bareHandler:
		return newConn(st.bare.addr, st.product.reader(), http.StatusOK)
	case reads:
		return newConn(st.product.addr, st.product.reader(), http.StatusOK)
	case writes:
		return newConn(st.product.addr, st.product.writer(), http.StatusCreated)
	}
	return st.raft.caller()
}
