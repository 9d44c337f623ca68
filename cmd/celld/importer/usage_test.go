package importer

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestUsageErrorsSendNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, c *Command)
		want   string
	}{
		{"no gateway", func(t *testing.T, c *Command) { c.Gateway = "" }, "--gateway is missing"},
		{"odd gateway", func(t *testing.T, c *Command) { c.Gateway = "localhost:8080" }, "is not a URL like"},
		{"password in the gateway", func(t *testing.T, c *Command) { c.Gateway = "http://u:p@h" }, "more than a scheme"},
		{"no token", func(t *testing.T, c *Command) { c.TokenFile = "" }, "--token-file (or CELLD_TOKEN_FILE) is missing"},
		{"empty token", func(t *testing.T, c *Command) { c.TokenFile = file(t, "token", "\n") }, "does not hold one token"},
		{"two tokens", func(t *testing.T, c *Command) { c.TokenFile = file(t, "token", "a\nb\n") }, "does not hold one token"},
		{"absent token", func(t *testing.T, c *Command) { c.TokenFile = "testdata/absent" }, "no such file"},
		{"no tenant", func(t *testing.T, c *Command) { c.Tenant = "" }, "--tenant is missing"},
		{"odd tenant", func(t *testing.T, c *Command) { c.Tenant = "../T8" }, "is not a tenant id"},
		{"odd currency", func(t *testing.T, c *Command) { c.Currency = "usd" }, "is not an ISO 4217 code"},
		{"no files", func(t *testing.T, c *Command) { c.Customers, c.Invoices, c.Map = "", "", nil }, "give --customers, --invoices or both"},
		{"absent file", func(t *testing.T, c *Command) { c.Invoices = "testdata/absent.csv" }, "no such file"},
		{"empty file", func(t *testing.T, c *Command) { c.Invoices = file(t, "e.csv", "") }, "the file is empty"},
		{"a map without its file", func(t *testing.T, c *Command) { c.Invoices = "" }, "needs --invoices"},
		{"missing column", func(t *testing.T, c *Command) { c.Map = append(c.Map, "invoices.status=State") }, `there is no column "State"`},
		{"odd parallel", func(t *testing.T, c *Command) { c.Parallel = 0 }, "--parallel is 1 to 256"},
		{"report over the input", func(t *testing.T, c *Command) {
			c.Customers = file(t, "c.csv", "name\nAnn\n")
			c.Map = nil
			c.Invoices = ""
			c.Report = c.Customers
		}, "is the file of the customers"},
		{"report in no folder", func(t *testing.T, c *Command) { c.Report = "testdata/absent/e.csv" }, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeAPI(t)
			c := sample(t, f)
			test.change(t, &c)
			r := importing(t, t.Context(), c, realClock())
			if r.code != exitUsage || !strings.Contains(r.err.Error(), test.want) || r.text != "" {
				t.Errorf("code %d, %v, stdout %q; want %q", r.code, r.err, r.text, test.want)
			}
			if f.n != 0 {
				t.Errorf("%d requests were sent", f.n)
			}
			if c.Report != "" && c.Report == c.Customers {
				if left, _ := os.ReadFile(c.Customers); len(left) == 0 {
					t.Error("the input is gone")
				}
			}
		})
	}
}

// The wiring of doc.go works, with flags as a shell gives them.
func TestThroughKong(t *testing.T) {
	f := newFakeAPI(t)
	t.Setenv("CELLD_TOKEN_FILE", tokenFile(t))
	var cli struct {
		Import Command `cmd:"" help:"Load customers and invoices from CSV files."`
	}
	var stdout, stderr bytes.Buffer
	k, err := kong.New(&cli, kong.Writers(&stdout, &stderr), kong.BindTo(t.Context(), (*context.Context)(nil)))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := k.Parse([]string{
		"import", "--gateway", f.URL, "--tenant", "T9", "--customers", file(t, "c.csv", "\"Surname, Name\",Id\nAnn,1\n"),
		"--map", "customers.name=Surname, Name", "--map", "customers.reference=Id",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
	if want := "customers  1 rows: 1 created, 0 already there, 0 failed\nEverything is loaded.\n"; stdout.String() != want {
		t.Errorf("stdout %q, want %q", stdout.String(), want)
	}
	stdout.Reset()
	if err := parsed.Run(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stdout.String(), "Nothing changed: everything was there already.") {
		t.Errorf("stdout %q", stdout.String())
	}
}
