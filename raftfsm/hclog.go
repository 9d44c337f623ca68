package raftfsm

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger turns the library's log lines into slog's. Its debug lines are
// dropped.
func raftLogger(to *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(logSink{to})
	return l
}

type logSink struct{ to *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s logSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	var l slog.Level
	switch level {
	case hclog.Error:
		l = slog.LevelError
	case hclog.Warn:
		l = slog.LevelWarn
	case hclog.Info:
		l = slog.LevelInfo
	default:
		return
	}
	s.to.Log(context.Background(), l, name+": "+msg, args...)
}
