package main

import (
	"io"
	"log/slog"
)

// newLogger writes JSON lines with the fixed keys that the packages use.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}
