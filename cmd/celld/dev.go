package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"celld/cmd/celld/platform"
)

const (
	// maxLog bounds DIR/celld.log; one old file of the same size is kept.
	maxLog = 64 << 20
	// devStopWithin is how long Ctrl-C may take.
	devStopWithin = 9 * time.Second
)

type devCommand struct {
	Data     string `default:"celld-data" placeholder:"DIR" help:"Folder for everything the platform keeps; other files may lie there (default ${default})."`
	HTTP     string `name:"http" default:"127.0.0.1:8080" placeholder:"ADDR" help:"host:port of the public API (default ${default})."`
	Admin    string `default:"127.0.0.1:8081" placeholder:"ADDR" help:"host:port of the operator API (default ${default})."`
	Replicas int    `placeholder:"N" help:"Nodes of each cell (default 3); fixed when the folder is first used."`
	Gateways int    `placeholder:"N" help:"Gateways (default 1); fixed when the folder is first used. Further ones get the next free ports."`
	Fixture  bool   `help:"Load the adversarial fixture: tenants T7 and T8 and their users. Does nothing where it is loaded."`
	Isolate  bool   `help:"Run each node and gateway as a process of its own."`
	Log      string `enum:"file,stderr" default:"file" help:"Where the log goes: file (DIR/celld.log) or stderr."`
	LogLevel string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: ${enum}."`
}

// Run starts the platform and stops it when ctx ends.
func (c *devCommand) Run(ctx context.Context, out io.Writer) (err error) {
	log, closeLog, err := c.openLog()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	began := time.Now()
	p, err := platform.Start(ctx, platform.Options{
		Dir: c.Data, HTTP: c.HTTP, Admin: c.Admin, Replicas: c.Replicas, Gateways: c.Gateways,
		Fixture: c.Fixture, Isolate: c.Isolate, Log: log, Level: level,
		Progress: func(text string) { fmt.Fprintln(out, "celld:", text) },
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "celld: ready after %.1f s\n", time.Since(began).Seconds())
	c.welcome(out, p)
	<-ctx.Done()
	fmt.Fprintln(out, "celld: stopping; once more Ctrl-C ends it at once")
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStopWithin)
	defer cancel()
	if err := p.Stop(stopCtx); err != nil {
		return err
	}
	fmt.Fprintln(out, "celld: stopped")
	return nil
}

func (c *devCommand) openLog() (io.Writer, func() error, error) {
	if c.Log == "stderr" {
		return os.Stderr, func() error { return nil }, nil
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data folder: %w", err)
	}
	l, err := platform.OpenLog(platform.LogPath(c.Data), maxLog)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return l, l.Close, nil
}

// welcome says what is where, and what to try.
func (c *devCommand) welcome(out io.Writer, p *platform.Platform) {
	cred := p.Credentials()
	fmt.Fprintf(out, "\n  public API    %s\n", cred.Gateway)
	for _, more := range cred.Gateways {
		if more != cred.Gateway {
			fmt.Fprintf(out, "                %s\n", more)
		}
	}
	fmt.Fprintf(out, "  operator API  %s   (%s admin --admin %s --token-file %s cell list)\n",
		cred.Admin, os.Args[0], cred.Admin, platform.OperatorTokenPath(c.Data))
	fmt.Fprintf(out, "  credentials   %s\n", filepath.Clean(platform.CredentialsPath(c.Data)))
	if c.Log == "file" {
		fmt.Fprintf(out, "  log           %s\n", filepath.Clean(platform.LogPath(c.Data)))
	}
	fmt.Fprintln(out, "\nTry:")
	for _, line := range curls(cred) {
		fmt.Fprintf(out, "  %s\n", line)
	}
	fmt.Fprintln(out, "\nCtrl-C stops the platform.")
}

// curls are three lines that work as they stand.
func curls(c platform.Credentials) []string {
	line := func(user, rest string) string {
		return fmt.Sprintf("curl -sS -H 'Authorization: Bearer %s' %s", c.Users[user], rest)
	}
	if c.Users["U7"] != "" {
		return []string{
			line("U7", c.Gateway+"/tenants/T7/invoices/17"),
			line("U7", fmt.Sprintf(`-H 'Content-Type: application/json' -d '{"customerId":4,"amountMinor":1250,"currency":"USD"}' %s/tenants/T7/invoices`, c.Gateway)),
			line("U8", c.Gateway+"/tenants/T7/invoices/17   # U8 is no member of T7: not found"),
		}
	}
	return []string{
		line("U1", fmt.Sprintf(`-H 'Content-Type: application/json' -d '{"name":"Ada Lovelace","country":"GB"}' %s/tenants/T1/customers`, c.Gateway)),
		line("U1", fmt.Sprintf(`-H 'Content-Type: application/json' -d '{"customerId":1,"amountMinor":1250,"currency":"USD"}' %s/tenants/T1/invoices`, c.Gateway)),
		line("U1", "'"+c.Gateway+"/tenants/T1/invoices?sort=-invoiceId'"),
	}
}
