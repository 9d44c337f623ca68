package hop

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	helloTime    = 5 * time.Second
	maxSessions  = 256 // connections to one server
	maxParked    = 64  // goroutines of a connection that wait for its next request
	refuseFactor = 2   // times maxStreams: requests whose caller has gone count too
)

// Server answers requests by an http.Handler. It owns the goroutines of its
// connections and of the handlers that it calls; Shutdown and Close wait for them.
type Server struct {
	handler http.Handler
	logger  *slog.Logger
	timing  timing

	mu       sync.Mutex
	sessions map[*session]struct{}
	draining bool
	closed   bool
	life     context.Context // of connections that have not said hello yet
	end      context.CancelFunc
	work     sync.WaitGroup // one a connection, and Serve

	payloads sync.Pool // of *[]byte: requests as they came, answers before they go
}

// NewServer makes a server. The handler's http.ResponseWriter can Flush and is
// good until the handler returns, as is the request's body. What the handler has
// not read of the body when it begins to answer is lost.
func NewServer(handler http.Handler, logger *slog.Logger) *Server {
	s := &Server{handler: handler, logger: logger, timing: defaultTiming(), sessions: make(map[*session]struct{})}
	s.payloads.New = func() any { b := make([]byte, 0, 4<<10); return &b }
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Serve takes connections from l until that is closed, and returns l's error. Who
// may connect is l's to decide.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	stop := context.AfterFunc(s.life, func() { _ = l.Close() }) // Accept returns
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.life.Err() != nil {
				return http.ErrServerClosed
			}
			return err
		}
		s.mu.Lock()
		full := s.draining || len(s.sessions) >= maxSessions
		if !full {
			session := &session{server: s, jobs: make(chan *serving)}
			s.sessions[session] = struct{}{}
			s.work.Go(func() { s.attend(session, conn) })
		}
		s.mu.Unlock()
		if full {
			_ = conn.Close() // who asked for it tries again, or elsewhere
		}
	}
}

// attend is a connection's goroutine, from hello to end.
func (s *Server) attend(session *session, conn net.Conn) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, session)
	}()
	peer, rest, err := s.greet(conn)
	if err != nil {
		s.logger.Debug("a connection did not come about", "error", errors.Join(err, conn.Close()))
		return
	}
	l := newLink(conn, peer, s.timing)
	l.serves = session
	session.link = l
	session.remote = conn.RemoteAddr().String()
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		session.tls = &state
	}
	s.mu.Lock()
	session.greeted = true
	draining, closed := s.draining, s.closed
	s.mu.Unlock()
	l.start(rest)
	if draining {
		session.drain()
	}
	if closed {
		l.fail(http.ErrServerClosed)
	}
	<-l.done
	session.workers.Wait()
	l.work.Wait()
	if err := l.err; !errors.Is(err, errEnded) && !errors.Is(err, http.ErrServerClosed) {
		s.logger.Debug("a connection was lost", "error", err)
	}
}

// greet answers the other side's hello by the version that both speak.
func (s *Server) greet(conn net.Conn) (peer hello, rest []byte, err error) {
	ctx, cancel := context.WithTimeout(s.life, helloTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	if peer, rest, err = readHello(conn); err != nil {
		return peer, nil, err
	}
	peer.version = min(peer.version, version)
	own := hello{version: peer.version, streams: maxStreams, window: window}
	if _, err = conn.Write(appendFrame(nil, kindHello, 0, 0, own.payload(), nil)); err != nil {
		return peer, nil, err
	}
	if !stop() {
		return peer, nil, context.Cause(ctx)
	}
	return peer, rest, nil
}

// Shutdown takes no more connections and requests, lets those under way end and
// their answers go out, and returns when nothing runs any more. When ctx ends
// first it cuts off what is left and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for session := range s.sessions {
		if session.greeted {
			session.drain()
		}
	}
	s.mu.Unlock()
	s.end()
	cut := context.AfterFunc(ctx, s.cut)
	s.work.Wait()
	if !cut() {
		return context.Cause(ctx)
	}
	return nil
}

// Close cuts everything off and returns when nothing runs any more. The contexts
// of requests under way end; their handlers are waited for.
func (s *Server) Close() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.end()
	s.cut()
	s.work.Wait()
}

func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for session := range s.sessions {
		if session.greeted {
			session.link.fail(http.ErrServerClosed)
		}
	}
}
