package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"celld/cmd/celld/platform"
)

// platformUnderTest is the platform that a run measures.
type platformUnderTest struct {
	p        *platform.Platform
	isolated bool
	log      io.Closer // nil without --log
}

// logBytes bounds what --log keeps.
const logBytes = 256 << 20

func startPlatform(ctx context.Context, o *options, dir string) (*platformUnderTest, error) {
	u := &platformUnderTest{isolated: o.Isolate}
	opts := platform.Options{Dir: dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Replicas: o.Replicas, Isolate: o.Isolate, Log: io.Discard}
	if o.Isolate {
		binary, err := filepath.Abs(o.Celld)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(binary); err != nil {
			return nil, err
		}
		opts.Binary = binary
	}
	if o.Log != "" {
		log, err := platform.OpenLog(o.Log, logBytes)
		if err != nil {
			return nil, err
		}
		opts.Log, u.log = log, log
	}
	p, err := platform.Start(ctx, opts)
	if err != nil {
		return nil, errors.Join(err, u.closeLog())
	}
	u.p = p
	return u, nil
}

func (u *platformUnderTest) access() access {
	c := u.p.Credentials()
	return access{gateway: c.Gateway, admin: c.Admin, operatorToken: c.OperatorToken}
}

// cpu counts as its own what this process and the members' own processes use.
func (u *platformUnderTest) cpu() (usage, error) {
	var c usage
	var err error
	if c.machine, err = machineCPU(); err != nil {
		return c, err
	}
	if c.own, err = ownCPU(); err != nil || !u.isolated {
		return c, err
	}
	for _, m := range u.p.Members() {
		one, err := processCPU(m.PID())
		if err != nil {
			return c, err
		}
		c.own += one
	}
	return c, nil
}

// stopWithin is how long the platform may take to stop.
const stopWithin = 15 * time.Second

func (u *platformUnderTest) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return errors.Join(u.p.Stop(ctx), u.closeLog())
}

func (u *platformUnderTest) closeLog() error {
	if u.log == nil {
		return nil
	}
	return u.log.Close()
}
