package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBenchMeasuresEverything runs the whole of it, as short as it goes.
func TestBenchMeasuresEverything(t *testing.T) {
	o := &options{
		Tenants: 2, Cells: 2, Invoices: 2, Replicas: 1, Connections: []int{1, 3}, Rounds: 2,
		Duration: 40 * time.Millisecond, Warmup: 5 * time.Millisecond, Hot: 0.2, Dir: t.TempDir(), JSON: true,
	}
	var out, progress bytes.Buffer
	if err := bench(t.Context(), o, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	// How much was measured is the machine's business: on a busy one a slice this
	// short may see no call end.
	if len(rep.Lines) != 2*4 || len(rep.Ratios) > 2*2 {
		t.Fatalf("%d lines and %d ratios, want 8 and at most 4:\n%s", len(rep.Lines), len(rep.Ratios), &out)
	}
	for _, l := range rep.Lines {
		if l.Errors+l.WarmupErrors != 0 || l.P99 < l.P50 || (l.PerSecond > 0) != (l.Requests > 0) {
			t.Errorf("%+v", l)
		}
	}
	for _, q := range rep.Ratios {
		if q.Ratio < 0 || q.Least > q.Most {
			t.Errorf("%+v", q)
		}
	}
	if rep.Setup.WritesKept == 0 {
		t.Error("no write was found again")
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("the run left %v behind: %v", left, err)
	}
	var table bytes.Buffer
	if err := rep.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bare handler", "raw Raft", "acknowledged writes were found again"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
}

func TestFailedCallsShow(t *testing.T) {
	r := newResult()
	r.calls, r.failed, r.firstErr, r.elapsed = 3, 1, errors.New("status 503"), time.Second
	r.latency.add(time.Millisecond)
	r.latency.add(2 * time.Millisecond)
	var rep report
	rep.add(64, map[kind][]*result{writes: {r}}, map[kind]uint64{writes: 2}, kinds("writes"))
	if rep.failed() != 3 || len(rep.Ratios) != 0 || rep.Lines[0].Requests != 2 {
		t.Fatalf("%+v", rep)
	}
	var table bytes.Buffer
	if err := rep.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "first error of writes at c=64: status 503") {
		t.Errorf("the table does not tell the first error:\n%s", &table)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := options{Tenants: 1, Cells: 1, Invoices: 1, Replicas: 3, Connections: []int{1}, Rounds: 1, Duration: time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*options){
		"tenants": func(o *options) { o.Tenants = 0 }, "cells": func(o *options) { o.Cells = 3 }, "rounds": func(o *options) { o.Rounds = 0 },
		"replicas": func(o *options) { o.Replicas = 8 }, "duration": func(o *options) { o.Duration = 0 }, "hot": func(o *options) { o.Hot = 1.5 },
		"connections": func(o *options) { o.Connections = []int{0} },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("--%s is not checked", name)
		}
	}
}
