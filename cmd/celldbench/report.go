package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// report is everything that a run says.
type report struct {
	Setup   setup   `json:"setup"`
	Lines   []line  `json:"lines"`
	Ratios  []ratio `json:"ratios"`
	Machine machine `json:"machine"`
}

type setup struct {
	Tenants     int     `json:"tenants"`
	Cells       int     `json:"cells"`
	Replicas    int     `json:"replicas"`
	Invoices    int     `json:"invoicesPerTenant"`
	Hot         float64 `json:"hotShare"`
	Isolated    bool    `json:"isolated"`
	Seconds     float64 `json:"secondsEach"`
	Rounds      int     `json:"rounds"`
	ReadBytes   int     `json:"readBytes"`
	EntryBytes  int     `json:"rawEntryBytes"`
	WritesKept  uint64  `json:"writesKept"` // acknowledged and found again at the end
	CPUIncludes string  `json:"cpuIncludes"`
}

// line is one kind of work at one number of connections.
type line struct {
	What        string  `json:"what"`
	Connections int     `json:"connections"`
	Requests    uint64  `json:"requests"`
	PerSecond   float64 `json:"perSecond"`
	P50         float64 `json:"p50Millis"`
	P95         float64 `json:"p95Millis"`
	P99         float64 `json:"p99Millis"`
	CPU         float64 `json:"cpuMicros"`
	Others      float64 `json:"othersShare"` // of the machine's CPU: used by other processes meanwhile
	Errors      uint64  `json:"errors"`

	WarmupErrors uint64 `json:"warmupErrors"`
	FirstError   string `json:"firstError,omitempty"`
}

func newLine(k kind, c int, r *result) line {
	l := line{
		What: k.String(), Connections: c, Requests: r.good(), PerSecond: r.perSecond(),
		P50: millis(r.latency.quantile(0.50)), P95: millis(r.latency.quantile(0.95)), P99: millis(r.latency.quantile(0.99)),
		CPU: float64(r.cpuPerCall()) / float64(time.Microsecond), Others: r.others(), Errors: r.failed,
	}
	if r.firstErr != nil {
		l.FirstError = r.firstErr.Error()
	}
	return l
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// add takes in what was measured at c connections.
func (r *report) add(c int, rounds map[kind][]*result, failedWarm map[kind]uint64, order []kind) {
	for _, k := range order {
		all := newResult()
		for _, one := range rounds[k] {
			all.merge(one)
		}
		l := newLine(k, c, all)
		l.WarmupErrors = failedWarm[k]
		r.Lines = append(r.Lines, l)
	}
	for _, pair := range []struct {
		what              string
		product, baseline kind
	}{{"reads/bare", reads, bareHandler}, {"writes/raw", writes, rawRaft}} {
		if q, ok := newRatio(pair.what, c, rounds[pair.product], rounds[pair.baseline]); ok {
			r.Ratios = append(r.Ratios, q)
		}
	}
}

// failed counts the calls that were not answered as they should be.
func (r *report) failed() uint64 {
	var n uint64
	for _, l := range r.Lines {
		n += l.Errors + l.WarmupErrors
	}
	return n
}

// ratio is product over baseline; least and most are those of single rounds.
type ratio struct {
	What        string  `json:"what"`
	Connections int     `json:"connections"`
	Ratio       float64 `json:"ratio"`
	Least       float64 `json:"least"`
	Most        float64 `json:"most"`
}

// newRatio compares one kind's rounds with its baseline's. There is nothing to
// compare where one of them did nothing.
func newRatio(what string, c int, product, baseline []*result) (ratio, bool) {
	all := ratio{What: what, Connections: c}
	if len(product) == 0 {
		return all, false
	}
	sumP, sumB := newResult(), newResult()
	for i := range min(len(product), len(baseline)) {
		sumP.merge(product[i])
		sumB.merge(baseline[i])
		if baseline[i].perSecond() == 0 {
			return all, false
		}
		one := product[i].perSecond() / baseline[i].perSecond()
		if i == 0 {
			all.Least, all.Most = one, one
		}
		all.Least, all.Most = min(all.Least, one), max(all.Most, one)
	}
	if sumB.perSecond() == 0 {
		return all, false
	}
	all.Ratio = sumP.perSecond() / sumB.perSecond()
	return all, true
}

// machine is where the run took place.
type machine struct {
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu"`
	OS         string `json:"os"`
	Filesystem string `json:"filesystem"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
	Load       string `json:"loadAverageBefore"` // over 1, 5 and 15 minutes
	At         string `json:"at"`
}

func newMachine(dir string) machine {
	m := machine{
		Cores: runtime.NumCPU(), CPU: cpuModel(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Filesystem: filesystem(dir), Go: runtime.Version(), Commit: "unknown", Load: "unknown",
		At: time.Now().UTC().Format(time.RFC3339),
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 3 {
			m.Load = strings.Join(f[:3], " ")
		}
	}
	if c := commit(); c != "" {
		m.Commit = c
	}
	return m
}

// commit is what the program was built from, as the build says or else the work
// tree in which it runs.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, changed := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+changes"
			}
		}
		if revision != "" {
			return revision + changed
		}
	}
	out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for l := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// filesystem names what lies under dir: on a memory file system a sync costs
// nothing and the figures of writes say nothing.
func filesystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x2fc12fc1:
		return "zfs"
	case 0x01021994:
		return "tmpfs (syncs cost nothing: figures of writes mean nothing)"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("%#x", uint32(s.Type))
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) writeTable(out io.Writer) error {
	s := r.Setup
	fmt.Fprintf(out, "%d tenants over %d of the platform's two cells, %d replicas a cell, %d invoices each; %.3gs each, in %d rounds by turns\n",
		s.Tenants, s.Cells, s.Replicas, s.Invoices, s.Seconds, s.Rounds)
	if s.Hot > 0 {
		fmt.Fprintf(out, "one tenant gets %.0f %% of the requests besides its share of the rest\n", 100*s.Hot)
	}
	fmt.Fprintf(out, "a read answers %d bytes, as the bare handler does; a raw entry holds %d bytes\nCPU: %s; others: the share of the machine's CPU that went to anything else\n\n", s.ReadBytes, s.EntryBytes, s.CPUIncludes)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tc\trequests/s\tp50 ms\tp95 ms\tp99 ms\tCPU us/request\tothers %\terrors\t")
	for _, l := range r.Lines {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%d\t\n", l.What, l.Connections, l.PerSecond, l.P50, l.P95, l.P99, l.CPU, 100*l.Others, l.Errors+l.WarmupErrors)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.Ratios) > 0 {
		fmt.Fprintln(out)
		w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "ratio\tc\tall\tworst round\tbest round\t")
		for _, q := range r.Ratios {
			fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t\n", q.What, q.Connections, q.Ratio, q.Least, q.Most)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, l := range r.Lines {
		if l.FirstError != "" {
			fmt.Fprintf(out, "\nfirst error of %s at c=%d: %s", l.What, l.Connections, l.FirstError)
		}
	}
	if s.WritesKept > 0 {
		fmt.Fprintf(out, "\nall %d acknowledged writes were found again\n", s.WritesKept)
	}
	m := r.Machine
	_, err := fmt.Fprintf(out, "\n%d cores of %s, %s, %s, %s; commit %s; load average before %s; %s\n",
		m.Cores, m.CPU, m.OS, m.Filesystem, m.Go, m.Commit, m.Load, m.At)
	return err
}
