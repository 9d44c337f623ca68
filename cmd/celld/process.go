package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"celld/cmd/celld/settings"
)

// processFlags are what a gateway and a node are told on the command line alone.
type processFlags struct {
	Check          bool `help:"Check the settings, say what is wrong with them, and end."`
	Init           bool `help:"Form the group: only for the first start of all members of a new cell or directory. A member whose data is lost must not come back this way."`
	UntilStdinEnds bool `help:"Stop when standard input ends, for whoever starts celld as a child."`
}

// sayGood ends a check that found nothing wrong; warning is "" or what will be.
func (processFlags) sayGood(out io.Writer, warning string) error {
	if warning != "" {
		if _, err := fmt.Fprintln(out, "warning:", warning); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, "the settings are good")
	return err
}

// process is a running gateway or node.
type process interface {
	Failed() <-chan error
	Close(ctx context.Context) error
}

var errParentGone = errors.New("standard input has ended")

// serve runs a process until ctx ends, its standard input does or it fails.
func (f *processFlags) serve(ctx context.Context, logger *slog.Logger, within settings.Duration, open func() (process, error)) error {
	floor := heapFloor()
	defer runtime.KeepAlive(floor)
	p, err := open()
	if err != nil {
		return err
	}
	orphaned := make(chan struct{})
	if f.UntilStdinEnds {
		// It has no other end than the process's: a read of standard input cannot be
		// called off.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // any end is an end
			close(orphaned)
		}()
	}
	var failure, reason error
	select {
	case <-ctx.Done():
		reason = context.Cause(ctx)
	case <-orphaned:
		reason = errParentGone
	case failure = <-p.Failed():
		reason = failure
	}
	logger.Info("stopping", "reason", reason.Error())
	began := time.Now()
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(within))
	defer cancel()
	if err := p.Close(stopCtx); err != nil {
		return errors.Join(failure, fmt.Errorf("stop: %w", err))
	}
	logger.Info("stopped", "seconds", time.Since(began).Seconds())
	return failure
}
