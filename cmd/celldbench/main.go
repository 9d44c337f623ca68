package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	exitMissed = 3
)

// commands is the command line.
type commands struct {
	common  `embed:""`
	Ratios  ratiosCommand  `cmd:"" default:"withargs" help:"Reads and writes against a bare net/http handler and raw Raft, by turns (the default)."`
	Rate    rateCommand    `cmd:"" help:"Latency at given rates of requests, also beside one busy tenant."`
	Tenants tenantsCommand `cmd:"" help:"Ten thousand tenants in one cell: creation, start, memory, descriptors, load on some of them."`
	History historyCommand `cmd:"" help:"Cost of requests to one tenant as its history grows to a million invoices."`
}

const about = `Measure a whole platform on this machine, which it starts in a temporary folder and removes again.

Progress goes to stderr, the report to stdout: text, --markdown or --json. Exit code 0: measured; 1: a request failed, an acknowledged write was not found, or the run could not be made; 2: bad arguments; 3: with --strict, a goal was missed.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c commands
	ended, code := false, 0
	parser, err := kong.New(&c, kong.Name("celldbench"), kong.Description(about), kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Exit(func(n int) { ended, code = true, n }))
	if err != nil {
		fmt.Fprintln(stderr, "celldbench:", err)
		return exitFailed
	}
	parsed, err := parser.Parse(args)
	if ended { // --help has said everything
		return code
	}
	if err != nil {
		fmt.Fprintf(stderr, "celldbench: %v; celldbench --help says more\n", err)
		return exitUsage
	}
	chosen := map[string]scenario{"ratios": &c.Ratios, "rate": &c.Rate, "tenants": &c.Tenants, "history": &c.History}[parsed.Command()]
	err = c.common.measure(ctx, parsed.Command(), chosen, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errMissed):
		fmt.Fprintln(stderr, "celldbench:", err)
		return exitMissed
	}
	fmt.Fprintln(stderr, "celldbench:", err)
	return exitFailed
}
