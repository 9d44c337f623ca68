package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/bojanz/currency"

	"celld/store/tenant"
)

// Command is the command line of `celld import`. Import checks what is required,
// so that every misuse ends with the same exit code.
type Command struct {
	Gateway   string        `name:"gateway" placeholder:"URL" help:"Address of the gateway's public API. Required."`
	TokenFile string        `name:"token-file" env:"CELLD_TOKEN_FILE" placeholder:"F" help:"File with the API token of a member of the tenant. Required."`
	Tenant    string        `name:"tenant" placeholder:"T9" help:"Tenant to load into. Required."`
	Currency  string        `name:"currency" placeholder:"CODE" help:"ISO 4217 code of invoices that have none of their own."`
	Customers string        `name:"customers" placeholder:"F" help:"CSV file of customers."`
	Invoices  string        `name:"invoices" placeholder:"F" help:"CSV file of invoices."`
	Map       []string      `name:"map" sep:"none" placeholder:"KIND.FIELD=HEADER[+HEADER...]" help:"Column, or columns joined by a space, of a field; empty for none. Repeatable. A column that has a field's own name needs no flag; for invoices.customer it is customerReference."`
	Parallel  int           `name:"parallel" default:"16" placeholder:"N" help:"Requests under way at once, 1 to 256 (default ${default})."`
	Report    string        `name:"report" placeholder:"F" help:"Write the rows' errors to this file as CSV instead of to stderr."`
	JSON      bool          `name:"json" help:"Print the summary as one JSON document."`
	MaxErrors int64         `name:"max-errors" default:"1000" placeholder:"N" help:"Stop after this many rows have failed; 0 for never (default ${default})."`
	RetryFor  time.Duration `name:"retry-for" default:"2m" placeholder:"D" help:"How long one request is tried again while the gateway or the cell is away (default ${default})."`
}

// Exit codes.
const (
	exitIncomplete = 1
	exitUsage      = 2

	maxParallel = 256
	maxToken    = 4 << 10
)

// exitError is an error with the exit code that it asks for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// ExitCode makes kong end the process with this code.
func (e *exitError) ExitCode() int { return e.code }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// Run is called by kong.
func (c *Command) Run(ctx context.Context, k *kong.Context) error {
	return c.Import(ctx, k.Stdout, k.Stderr)
}

// Import loads the files. The summary goes to stdout, everything else to stderr.
// It returns nil when every row is in the tenant; otherwise the error has a method
// ExitCode: 1 when something was not loaded, 2 when nothing was sent because the
// command line or a header is wrong. When ctx ends it stops at once; requests
// under way are abandoned, which their keys make harmless.
func (c *Command) Import(ctx context.Context, stdout, stderr io.Writer) error {
	return c.load(ctx, stdout, stderr, realClock())
}

func (c *Command) load(ctx context.Context, stdout, stderr io.Writer, clock clock) error {
	l, err := c.prepare(stderr, clock)
	if err != nil {
		return err
	}
	stopped := l.run(ctx)
	err = l.close()
	s := l.tally.summary(c.Tenant, l.why(ctx, stopped))
	if writeErr := c.print(stdout, s); writeErr != nil {
		return &exitError{code: exitIncomplete, err: fmt.Errorf("writing the summary: %w", writeErr)}
	}
	switch {
	case stopped != nil:
		return &exitError{code: exitIncomplete, err: fmt.Errorf("the import stopped: %s", s.Stopped)}
	case !s.Complete:
		return &exitError{code: exitIncomplete, err: fmt.Errorf("%d rows were not loaded", l.tally.failures())}
	case err != nil:
		return &exitError{code: exitIncomplete, err: err}
	}
	return nil
}

func (c *Command) print(stdout io.Writer, s Summary) error {
	if !c.JSON {
		_, err := io.WriteString(stdout, s.text())
		return err
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// prepare checks the command line and opens the files and reads their headers,
// before anything is sent.
func (c *Command) prepare(stderr io.Writer, clock clock) (l *loader, err error) {
	base, err := c.check()
	if err != nil {
		return nil, err
	}
	customers, invoices := customers(), invoices()
	maps, err := parseMaps(c.Map, customers, invoices)
	if err != nil {
		return nil, usage("%w", err)
	}
	con := newConsole(stderr)
	token, err := readToken(c.TokenFile, con)
	if err != nil {
		return nil, usage("--token-file: %w", err)
	}
	l = &loader{command: c, console: con}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for _, in := range []struct {
		kind *kind
		path string
	}{{customers, c.Customers}, {invoices, c.Invoices}} {
		if in.path == "" {
			if len(maps[in.kind.name]) > 0 {
				return l, usage("--map %s... needs --%s", in.kind.name, in.kind.name)
			}
			continue
		}
		src, err := openSource(in.kind, in.path, maps[in.kind.name])
		if err != nil {
			return l, usage("--%s %s: %w", in.kind.name, in.path, err)
		}
		l.sources = append(l.sources, src)
		if len(src.layout.ignored) > 0 {
			con.line("%s: not loaded: the columns %s", src.path, quoteAll(src.layout.ignored))
		}
	}
	report, err := c.openReport(l)
	if err != nil {
		return l, usage("--report: %w", err)
	}
	if l.tally, err = newTally(report, customers, invoices); err != nil {
		return l, usage("--report: %w", err)
	}
	for _, src := range l.sources {
		l.tally.files[src.layout.kind.name].loaded = true
	}
	l.client = &client{
		http: newHTTPClient(c.Parallel), base: base, token: token,
		retryFor: c.RetryFor, clock: clock, console: con, tally: l.tally,
	}
	return l, nil
}

// check returns the gateway's base address.
func (c *Command) check() (string, error) {
	for _, required := range []struct{ flag, value string }{
		{"--gateway", c.Gateway}, {"--token-file (or CELLD_TOKEN_FILE)", c.TokenFile}, {"--tenant", c.Tenant},
	} {
		if required.value == "" {
			return "", usage("%s is missing", required.flag)
		}
	}
	if c.Customers == "" && c.Invoices == "" {
		return "", usage("give --customers, --invoices or both")
	}
	base, err := parseGateway(c.Gateway)
	if err != nil {
		return "", usage("--gateway %s %w", quote(c.Gateway), err)
	}
	if !tenant.ValidID(c.Tenant) {
		return "", usage("--tenant %s is not a tenant id", quote(c.Tenant))
	}
	if c.Currency != "" && !currency.IsValid(c.Currency) {
		return "", usage("--currency %s is not an ISO 4217 code", quote(c.Currency))
	}
	if c.Parallel < 1 || c.Parallel > maxParallel {
		return "", usage("--parallel is 1 to %d", maxParallel)
	}
	if c.MaxErrors < 0 || c.RetryFor < 0 {
		return "", usage("--max-errors and --retry-for are not negative")
	}
	return base, nil
}

// openReport creates the report, unless that would destroy a file that is to be
// read. It returns nil without --report.
func (c *Command) openReport(l *loader) (io.Writer, error) {
	if c.Report == "" {
		return nil, nil
	}
	if info, err := os.Stat(c.Report); err == nil {
		for _, src := range l.sources {
			if of, err := src.file.Stat(); err == nil && os.SameFile(info, of) {
				return nil, fmt.Errorf("%s is the file of the %s", c.Report, src.layout.kind.name)
			}
		}
	}
	f, err := os.OpenFile(c.Report, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	l.report = f
	return f, nil
}

// readToken reads the token's file and says so if others can read it too.
func readToken(path string, con *console) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" || len(content) > maxToken {
		return "", fmt.Errorf("%s does not hold one token", path)
	}
	for _, b := range []byte(token) {
		if b <= ' ' || b > '~' {
			return "", fmt.Errorf("%s does not hold one token", path)
		}
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		con.line("warning: %s can be read by others; chmod 600 is safer", path)
	}
	return token, nil
}
