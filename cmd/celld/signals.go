package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// errStopped is the cause of a context that a signal ended.
var errStopped = errors.New("asked to stop")

// withSignals returns a context that the first SIGINT or SIGTERM ends. A second
// one ends the process at once: whoever sends it does not want to wait.
func withSignals(parent context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for asked := false; ; asked = true {
			select {
			case <-signals:
				if asked {
					fmt.Fprintln(stderr, "celld: stopped at once")
					os.Exit(exitFailed)
				}
				cancel(errStopped)
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-finished
		cancel(nil)
	}
}
