package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
)

// bare is net/http by itself: one handler without routing that answers the same
// body to everything.
type bare struct {
	addr   string
	server *http.Server
	done   chan error
}

func serveBare(body []byte, logger *slog.Logger) (*bare, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	length := strconv.Itoa(len(body))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", length)
		_, _ = w.Write(body) // the load generator sees what was not sent
	})
	b := &bare{
		addr:   l.Addr().String(),
		server: &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)},
		done:   make(chan error, 1),
	}
	go func() { b.done <- b.server.Serve(l) }()
	return b, nil
}

func (b *bare) close() error {
	err := b.server.Close()
	if end := <-b.done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
