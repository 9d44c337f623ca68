package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"celld/cmd/celldbench/load"
)

func sample() *Report {
	r := load.NewResult()
	r.Calls, r.Failed, r.FirstErr, r.Elapsed = 3, 1, errors.New("status 503"), time.Second
	rep := &Report{Scenario: "sample", Kept: 7}
	rep.Note("what one must know")
	failed := NewLine("part", "writes", r)
	failed.Aim(time.Hour)
	good := NewLine("", "reads", &load.Result{Calls: 5, Elapsed: time.Second, Latency: &load.Histogram{}})
	good.Connections = 64
	good.Aim(time.Hour)
	rep.Lines = []Line{failed, good}
	rep.Ratios = []Ratio{{What: "reads/bare", Connections: 64, Ratio: 0.3, Least: 0.2, Most: 0.4, Goal: 0.35, Beyond: 0.4}, {What: "writes/raw", Ratio: 1}}
	rep.Tell(12.345, "s", "to ready with %d tenants", 10_000)
	return rep
}

func TestFailuresAndMissesAreCounted(t *testing.T) {
	rep := sample()
	if rep.Bad() != 1 || rep.Missed() != 2 || rep.Lines[1].Goal.Met != true {
		t.Errorf("%d bad, %d missed, %+v", rep.Bad(), rep.Missed(), rep.Lines)
	}
}

func TestTablesHoldEverything(t *testing.T) {
	for style, want := range map[Style][]string{
		Text: {"what one must know", "requests/s", "p95 < 3600000: MISSED", "p95 < 3600000: met", "0.35: MISSED", "to ready with 10000 tenants  12.35 s",
			"first error of part writes: status 503", "all 7 acknowledged writes were found again"},
		Markdown: {"|  | what | c | requests/s |", "| --- | --- | ---: |", "| part | writes |  | 2 |", "| reads/bare | 64 | 0.30 | 0.20 | 0.40 | 0.35: MISSED | 0.40 |"},
	} {
		var out bytes.Buffer
		if err := sample().Write(&out, style); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("style %d lacks %q:\n%s", style, w, &out)
			}
		}
		if strings.Contains(out.String(), "offered/s") {
			t.Errorf("style %d shows a column without a value", style)
		}
	}
}

func TestRatioOfRounds(t *testing.T) {
	at := func(calls uint64) *load.Result {
		return &load.Result{Calls: calls, Elapsed: time.Second, Latency: &load.Histogram{}}
	}
	q, ok := NewRatio("a/b", 8, []*load.Result{at(10), at(30)}, []*load.Result{at(100), at(100)})
	if !ok || q.Ratio != 0.2 || q.Least != 0.1 || q.Most != 0.3 {
		t.Errorf("%+v, %v", q, ok)
	}
	if _, ok := NewRatio("a/b", 8, []*load.Result{at(10)}, []*load.Result{at(0)}); ok {
		t.Error("a baseline that did nothing gives a ratio")
	}
	if _, ok := NewRatio("a/b", 8, nil, []*load.Result{at(1)}); ok {
		t.Error("a product that was not measured gives a ratio")
	}
}
