package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"celld/cmd/celldbench/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs a command line as short as it goes, with --json, and reads its report.
// How fast it was is the machine's business: on a busy one a stretch this short may
// see no call end.
func play(t *testing.T, args ...string) report.Report {
	t.Helper()
	dir := t.TempDir()
	var out, progress bytes.Buffer
	args = append(args, "--replicas=1", "--json", "--dir="+dir)
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &progress, &out)
	}
	var rep report.Report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, l := range rep.Lines {
		if l.Errors+l.WarmupErrors+l.Unmade != 0 || l.P99 < l.P50 || (l.PerSecond > 0) != (l.Requests > 0) {
			t.Errorf("%+v", l)
		}
	}
	if rep.Kept == 0 {
		t.Error("no write was found again")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("the run left %v behind: %v", left, err)
	}
	return rep
}

func whats(rep report.Report) string {
	var all []string
	for _, l := range rep.Lines {
		all = append(all, strings.TrimSpace(l.Part+" "+l.What))
	}
	return strings.Join(all, "; ")
}

func TestRatios(t *testing.T) {
	rep := play(t, "--tenants=2", "--cells=2", "--invoices=2", "--connections=1,3", "--rounds=2", "--duration=40ms", "--warmup=5ms", "--hot=0.2",
		"--cpuprofile="+t.TempDir())
	one := "bare handler; reads; reads, hot tenant; reads, others; raw Raft; writes; writes, hot tenant; writes, others"
	if got := whats(rep); got != one+"; "+one {
		t.Errorf("lines %q", got)
	}
	if len(rep.Ratios) > 2*2 {
		t.Errorf("%d ratios", len(rep.Ratios))
	}
	for _, q := range rep.Ratios {
		if q.Ratio < 0 || q.Least > q.Most {
			t.Errorf("%+v", q)
		}
	}
}

func TestRate(t *testing.T) {
	rep := play(t, "rate", "--tenants=3", "--invoices=2", "--steady=50", "--peak=100", "--busy=50", "--beside=50", "--duration=400ms", "--warmup=20ms")
	want := "all tenants reads; all tenants writes; all tenants together; all tenants, peak reads; all tenants, peak writes; all tenants, peak together; " +
		"one busy tenant reads, busy tenant; one busy tenant writes, busy tenant; one busy tenant reads, others; one busy tenant writes, others; one busy tenant together"
	if got := whats(rep); got != want {
		t.Errorf("lines %q", got)
	}
	for _, l := range rep.Lines {
		if (l.Goal == nil) != (l.What == "together") || l.Offered == 0 {
			t.Errorf("%+v", l)
		}
	}
}

func TestTenants(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("<!-- figures: tenants -->\n<!-- end of figures -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rep := play(t, "tenants", "--into="+page, "--tenants=4", "--active=2", "--invoices=2", "--connections=2", "--rounds=1", "--duration=40ms", "--warmup=5ms", "--rest=20ms")
	if got := whats(rep); got != "first reads of active tenants; bare handler; reads; raw Raft; writes" {
		t.Errorf("lines %q", got)
	}
	var told []string
	for _, f := range rep.Facts {
		told = append(told, f.What)
		if f.Value <= 0 && f.What != "CPU at rest" {
			t.Errorf("%+v", f)
		}
	}
	if len(told) != 3+2+4+1+4 {
		t.Errorf("facts %q", told)
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "| CPU at rest |") {
		t.Errorf("the page holds %s, %v", b, err)
	}
}

func TestHistory(t *testing.T) {
	rep := play(t, "history", "--sizes=100,300", "--customers=3", "--connections=2", "--loaders=4", "--duration=30ms", "--warmup=0s")
	if len(rep.Lines) != 2*14 || rep.Kept < 300 {
		t.Errorf("%d writes kept, lines %q", rep.Kept, whats(rep))
	}
}

// TestArguments has one line for each thing that is checked.
func TestArguments(t *testing.T) {
	for _, args := range []string{
		"--tenants=0", "--cells=3", "--rounds=0", "--invoices=0", "--duration=0s", "--hot=1.5", "--connections=0", "--replicas=8", "--open-files=9",
		"--json --markdown", "rate --tenants=1", "rate --busy=-1", "rate --reads=1", "rate --in-flight=200", "rate --duration=0s", "tenants --active=0", "tenants --tenants=5 --active=6", "tenants --rest=0s", "tenants --connections=0",
		"history --sizes=10", "history --sizes=1000,100", "history --customers=0", "history --loaders=193", "history --duration=0s", "unknown", "--unknown",
	} {
		var out, progress bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &progress); code != exitUsage {
			t.Errorf("%s: exit code %d, %s", args, code, &progress)
		}
	}
}

func TestHelpSaysWhatThereIs(t *testing.T) {
	var out, progress bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &progress); code != 0 {
		t.Fatalf("exit code %d, %s", code, &progress)
	}
	for _, want := range []string{"ratios", "rate", "tenants", "history", "--json", "--cpuprofile", "Exit code"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("--help lacks %q:\n%s", want, &out)
		}
	}
}
