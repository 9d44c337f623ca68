package role

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// profiles answers for what the process is busy with, at an address of its own: a
// profile is for whoever may look into the machine, and neither for users nor for
// monitoring. The zero value serves nothing.
type profiles struct {
	server  *http.Server
	serving sync.WaitGroup
}

// open adds the listener of profiles to those that are opened together; nil for
// none.
func (p *profiles) open(ls *listeners, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	return ls.open("pprof", addr)
}

// serve answers on l, if there is one. There is no limit on how long an answer
// takes: whoever asks for a profile says how long it is to be.
func (p *profiles) serve(l net.Listener, logger *slog.Logger) {
	if l == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	p.server = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	p.serving.Go(func() {
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the server of profiles ended", "error", err)
		}
	})
}

// close ends what is served, at once.
func (p *profiles) close() error {
	if p.server == nil {
		return nil
	}
	err := p.server.Close()
	p.serving.Wait()
	return err
}
