package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"celld/cmd/celld/admin"
	"celld/cmd/celld/importer"
	"celld/node"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // refused, or failed
	exitUsage  = 2 // not understood

	exitRemoved = 3 // a node that its cell has removed: starting it again makes no sense
)

// cli is every command.
type cli struct {
	Dev     devCommand       `cmd:"" help:"Run a whole platform on this machine: a gateway and two cells."`
	Gateway gatewayCommand   `cmd:"" help:"Run a gateway."`
	Node    nodeCommand      `cmd:"" help:"Run a node of a cell."`
	CA      caCommand        `cmd:"" name:"ca" help:"The cluster's certificate authority."`
	Import  importer.Command `cmd:"" help:"Load customers and invoices from CSV files over the public API."`
	Admin   admin.Command    `cmd:"" help:"Operate a platform over its operator API."`
	Version versionCommand   `cmd:"" help:"Say which celld this is."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// usageError is a mistake in how a command was called.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }
func (u *usageError) Unwrap() error { return u.err }

// run is the whole program: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	code := -1 // what --help ends with, if it is asked for
	var commands cli
	parser, err := kong.New(&commands,
		kong.Name("celld"),
		kong.Description("A multitenant platform: every tenant a SQLite file of its own, replicated within a cell by Raft."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(c int) { code = c }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintf(stderr, "celld: %v\n", err)
		return exitFailed
	}
	if len(args) == 0 {
		fmt.Fprintln(stderr, "celld: which command? celld --help lists them; celld dev runs a whole platform on this machine")
		return exitUsage
	}
	ctx, stop := withSignals(context.Background(), stderr)
	defer stop()
	parsed, err := parser.Parse(args)
	if code >= 0 {
		return code // help was printed
	}
	if err == nil {
		parsed.BindTo(ctx, (*context.Context)(nil))
		parsed.BindTo(stdout, (*io.Writer)(nil))
		parsed.Bind(&commands.Admin)
		err = parsed.Run()
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "celld: %v\n", err) // the last line of a child tells its parent why it ended
	var coded interface{ ExitCode() int }
	var removed *node.Removed
	var usage *usageError
	var parse *kong.ParseError
	if errors.As(err, &parse) || errors.As(err, &usage) {
		return exitUsage
	}
	if errors.As(err, &removed) {
		return exitRemoved
	}
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitFailed
}
