package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"celld/cmd/celld/client"
	"celld/cmd/celld/platform"
)

// cell is the one that is broken.
const cell = "C2"

// world is the platform and an operator's way into it.
type world struct {
	p        *platform.Platform
	log      *platform.LogFile
	operator *client.Client
	disks    *disks
	points   string // folder of the failpoints that are to fire
}

const (
	logBytes   = 256 << 20
	stopWithin = 20 * time.Second
)

// logEntries makes a member that was away for a few seconds need what is in no log
// any more.
const logEntries = 100

func newWorld(ctx context.Context, o *options, binary, dir string) (*world, error) {
	log, err := platform.OpenLog(filepath.Join(dir, "celld.log"), logBytes)
	if err != nil {
		return nil, err
	}
	p, err := platform.Start(ctx, platform.Options{
		Dir: dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Isolate: true, Binary: binary,
		Log: log, Level: slog.LevelInfo, LogEntries: logEntries,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the platform: %w", err), log.Close())
	}
	at := p.Credentials()
	operator, err := client.New(at.Admin, at.OperatorToken)
	w := &world{p: p, log: log, operator: operator}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if w.operator != nil {
		w.operator.Close()
	}
	return errors.Join(w.p.Stop(ctx), w.log.Close())
}

// members is what the operator API tells of a cell's nodes.
type members struct {
	Nodes []struct {
		Node            string
		Leader, Healthy bool
		Absent          int
	}
}

// whole tells whether every node answers, one leads and none lacks anything.
func (m members) whole() bool {
	led := false
	for _, n := range m.Nodes {
		if !n.Healthy || n.Absent > 0 {
			return false
		}
		led = led || n.Leader
	}
	return led
}

func (m members) leader() string {
	for _, n := range m.Nodes {
		if n.Leader {
			return n.Node
		}
	}
	return ""
}

func (w *world) members(ctx context.Context) (m members, err error) {
	return m, w.operator.Once(ctx, client.Call{Method: "GET", Path: "/cells/" + cell, Into: &m})
}

// pace is how often something is looked at again.
const pace = 50 * time.Millisecond

// until polls ok until it is true. On an error that lasts it says what was waited
// for.
func until(ctx context.Context, within time.Duration, what string, ok func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		done, err := ok(ctx)
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("after %s still waiting: %s", within, what), err)
		}
	}
}

// healWithin bounds how long the platform may take to be whole again.
const healWithin = 90 * time.Second

func (w *world) awaitWhole(ctx context.Context) (m members, err error) {
	return m, until(ctx, healWithin, "every node of "+cell+" is healthy, one leads, nothing is absent", func(ctx context.Context) (bool, error) {
		got, err := w.members(ctx)
		m = got
		return err == nil && got.whole(), err
	})
}
