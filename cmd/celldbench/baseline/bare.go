package baseline

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
)

// Bare is net/http by itself: one handler without routing that answers the same
// body to everything.
type Bare struct {
	Addr   string
	server *http.Server
	done   chan error
}

// ServeBare starts it on a free port of this machine.
func ServeBare(body []byte, logger *slog.Logger) (*Bare, error) {
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
	b := &Bare{
		Addr:   l.Addr().String(),
		server: &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)},
		done:   make(chan error, 1),
	}
	go func() { b.done <- b.server.Serve(l) }()
	return b, nil
}

// Request is a request that it answers, ready for the wire.
func (b *Bare) Request() []byte {
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", b.Addr)
}

// Close ends it.
func (b *Bare) Close() error {
	err := b.server.Close()
	if end := <-b.done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
