package raftfsm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"time"

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
	s.to.Log(context.Background(), l, name+": "+msg, plain(args)...)
}

// plain are the library's keys and values as slog can write them.
func plain(args []any) []any {
	out := slices.Clone(args)
	for i := range out {
		if i%2 == 1 {
			out[i] = plainValue(out[i])
		} else if out[i] == "node" {
			out[i] = "raft_node" // the logger has a node of its own
		}
	}
	return out
}

func plainValue(v any) any {
	switch v := v.(type) {
	case hclog.Format:
		if len(v) > 0 {
			format, _ := v[0].(string)
			return fmt.Sprintf(format, v[1:]...)
		}
	case error, time.Duration, time.Time:
		return v
	}
	switch reflect.ValueOf(v).Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Slice, reflect.Map:
		return fmt.Sprintf("%+v", v)
	}
	return v
}
