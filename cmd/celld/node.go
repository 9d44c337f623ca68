package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"celld/cmd/celld/role"
	"celld/cmd/celld/settings"
)

type nodeCommand struct {
	Config settings.File[settings.Node] `placeholder:"FILE" help:"JSON file with the settings below; flags and environment go first."`
	processFlags
	settings.Node `embed:""`
}

// Run serves as a node of a cell until ctx ends.
func (c *nodeCommand) Run(ctx context.Context, out io.Writer) error {
	if err := c.Node.Check(); err != nil {
		return &usageError{err}
	}
	if c.Join && c.Init {
		return &usageError{errors.New("--init forms a cell and join waits to be added to one: leave one of them out")}
	}
	if c.processFlags.Check {
		return c.sayGood(out, c.Warning(time.Now()))
	}
	logger := newLogger(os.Stderr, c.Level())
	return c.serve(ctx, logger, c.StopWithin, func() (process, error) {
		return role.Node(ctx, c.Node, role.Options{Init: c.Init, Logger: logger})
	})
}
