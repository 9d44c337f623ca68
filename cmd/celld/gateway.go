package main

import (
	"context"
	"io"
	"os"
	"time"

	"celld/cmd/celld/role"
	"celld/cmd/celld/settings"
)

type gatewayCommand struct {
	Config settings.File[settings.Gateway] `placeholder:"FILE" help:"JSON file with the settings below; flags and environment go first."`
	processFlags
	settings.Gateway `embed:""`
}

// Run serves as a gateway until ctx ends.
func (c *gatewayCommand) Run(ctx context.Context, out io.Writer) error {
	if err := c.Gateway.Check(); err != nil {
		return &usageError{err}
	}
	if c.processFlags.Check {
		return c.sayGood(out, c.Warning(time.Now()))
	}
	logger := newLogger(os.Stderr, c.Level())
	return c.serve(ctx, logger, c.StopWithin, func() (process, error) {
		return role.Gateway(ctx, c.Gateway, role.Options{Init: c.Init, Logger: logger})
	})
}
