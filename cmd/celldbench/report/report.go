package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"celld/cmd/celldbench/load"
)

// Report is everything that a run says.
type Report struct {
	Scenario string   `json:"scenario"`
	Variant  string   `json:"variant,omitempty"` // of the scenario, as its flag says
	Setup    any      `json:"setup"`
	Notes    []string `json:"notes"` // what one must know to read the figures
	Lines    []Line   `json:"lines"`
	Ratios   []Ratio  `json:"ratios,omitempty"`
	Facts    []Fact   `json:"facts,omitempty"`
	Kept     uint64   `json:"writesKept"` // acknowledged and found again at the end
	Machine  Machine  `json:"machine"`
}

// Line is one kind of work under one load.
type Line struct {
	Part        string  `json:"part,omitempty"` // of the run
	What        string  `json:"what"`
	Connections int     `json:"connections,omitempty"`      // of a closed load
	Offered     float64 `json:"offeredPerSecond,omitempty"` // of an open load
	Requests    uint64  `json:"requests"`                   // answered as they should be
	PerSecond   float64 `json:"perSecond"`
	P50         float64 `json:"p50Millis"`
	P95         float64 `json:"p95Millis"`
	P99         float64 `json:"p99Millis"`
	Max         float64 `json:"maxMillis"`
	CPU         float64 `json:"cpuMicros,omitempty"` // of one request; 0 where it can't be told
	Others      float64 `json:"othersShare"`         // of the machine's CPU: used by other processes meanwhile
	Late        uint64  `json:"late,omitempty"`      // of an open load: sent after their time
	Unmade      uint64  `json:"unmade,omitempty"`    // of an open load: not sent at all
	Errors      uint64  `json:"errors"`
	FirstError  string  `json:"firstError,omitempty"`
	Goal        *Goal   `json:"goal,omitempty"`

	WarmupErrors uint64 `json:"warmupErrors,omitempty"`
}

// Goal is what a line was to reach.
type Goal struct {
	P95 float64 `json:"p95Millis"` // less than this
	Met bool    `json:"met"`
}

// NewLine is a line about r.
func NewLine(part, what string, r *load.Result) Line {
	l := Line{
		Part: part, What: what, Requests: r.Good(), PerSecond: r.PerSecond(),
		P50: millis(r.Latency.Quantile(0.50)), P95: millis(r.Latency.Quantile(0.95)), P99: millis(r.Latency.Quantile(0.99)), Max: millis(r.Latency.Max()),
		CPU: float64(r.CPUPerCall()) / float64(time.Microsecond), Others: r.Others(), Late: r.Late, Unmade: r.Unmade, Errors: r.Failed,
	}
	if r.FirstErr != nil {
		l.FirstError = r.FirstErr.Error()
	}
	return l
}

// Aim holds a line against a goal. Requests that failed or were not made miss it.
func (l *Line) Aim(p95 time.Duration) {
	l.Goal = &Goal{P95: millis(p95), Met: l.P95 < millis(p95) && l.Requests > 0 && l.bad() == 0}
}

func (l *Line) bad() uint64 { return l.Errors + l.WarmupErrors + l.Unmade }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Bad counts the calls that were not answered as they should be, or not made.
func (r *Report) Bad() uint64 {
	var n uint64
	for _, l := range r.Lines {
		n += l.bad()
	}
	return n
}

// Missed counts the goals that were not met.
func (r *Report) Missed() int {
	n := 0
	for _, l := range r.Lines {
		if l.Goal != nil && !l.Goal.Met {
			n++
		}
	}
	for _, q := range r.Ratios {
		if q.Goal > q.Ratio {
			n++
		}
	}
	return n
}

// Fact is one figure with its unit.
type Fact struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Tell adds a fact.
func (r *Report) Tell(value float64, unit, format string, args ...any) {
	r.Facts = append(r.Facts, Fact{What: fmt.Sprintf(format, args...), Value: value, Unit: unit})
}

// Note adds what one must know.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Ratio is product over baseline; Least and Most are those of single rounds.
type Ratio struct {
	What        string  `json:"what"`
	Connections int     `json:"connections"`
	Ratio       float64 `json:"ratio"`
	Least       float64 `json:"least"`
	Most        float64 `json:"most"`
	Goal        float64 `json:"goal,omitempty"` // at least; 0 for none
	Beyond      float64 `json:"goalBehind,omitempty"`
}

// NewRatio compares one kind's rounds with its baseline's. There is nothing to
// compare where one of them did nothing.
func NewRatio(what string, c int, product, baseline []*load.Result) (Ratio, bool) {
	all := Ratio{What: what, Connections: c}
	if len(product) == 0 {
		return all, false
	}
	sumP, sumB := load.NewResult(), load.NewResult()
	for i := range min(len(product), len(baseline)) {
		sumP.Merge(product[i])
		sumB.Merge(baseline[i])
		if baseline[i].PerSecond() == 0 {
			return all, false
		}
		one := product[i].PerSecond() / baseline[i].PerSecond()
		if i == 0 {
			all.Least, all.Most = one, one
		}
		all.Least, all.Most = min(all.Least, one), max(all.Most, one)
	}
	if sumB.PerSecond() == 0 {
		return all, false
	}
	all.Ratio = sumP.PerSecond() / sumB.PerSecond()
	return all, true
}

// WriteJSON writes one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
