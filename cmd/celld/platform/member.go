package platform

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"celld/node"
	"celld/store/stall"
)

const (
	// restartAfter is how long a member that ended stays down. Each time that it ends
	// by itself before it has lived for steadyAfter, it stays down for twice as long,
	// up to restartMost; one that was killed did nothing wrong.
	restartAfter = time.Second
	restartMost  = 30 * time.Second
	steadyAfter  = 5 * time.Second
)

// instance is one life of a member: a child process, or the role in this process.
type instance interface {
	ended() <-chan struct{}         // closed when it has ended, however
	why() error                     // valid after ended
	stop(ctx context.Context) error // in order; when ctx ends, at once
	kill() error                    // without a word of warning
	pid() int
}

// Member is one gateway or node and the goroutine that keeps it running.
type Member struct {
	name     string
	launch   func(ctx context.Context) (instance, error)
	isolated bool
	persist  bool // a first launch that fails is tried again like any other
	logger   *slog.Logger
	changed  func() error                 // told when the member got another process
	onEnd    func(name string, err error) // told when a life ended, or a launch failed

	onRemoved func(name string, err error) // told instead when its cell has removed it: it stays down

	mu      sync.Mutex
	current instance
	halt    chan context.Context // nil while not supervised; holds at most the one stop
	done    chan struct{}
	stopErr error // of the last stop; valid after done
}

// Name is the member's name, like C2/n1 or G1.
func (m *Member) Name() string { return m.name }

// PID is the process of the member's current life, 0 while it has none.
func (m *Member) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return 0
	}
	return m.current.pid()
}

// Start launches the member and keeps it running until Stop. It returns when the
// first launch has succeeded or failed; in the latter case nothing runs, or with
// persist it is tried again.
func (m *Member) Start(ctx context.Context) error {
	m.mu.Lock()
	if m.halt != nil {
		m.mu.Unlock()
		return nil
	}
	halt, done, first := make(chan context.Context, 1), make(chan struct{}), make(chan error, 1)
	m.halt, m.done = halt, done
	m.mu.Unlock()
	go m.supervise(ctx, halt, done, first)
	err := <-first
	if err != nil && !m.persist {
		<-done
		m.mu.Lock()
		m.halt = nil
		m.mu.Unlock()
	}
	return err
}

// Stop ends the member in order, or at once when ctx ends, and leaves it down.
func (m *Member) Stop(ctx context.Context) error {
	m.mu.Lock()
	halt, done := m.halt, m.done
	m.mu.Unlock()
	if halt == nil {
		return nil
	}
	select {
	case halt <- ctx:
	default: // somebody stops it already
	}
	<-done
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt = nil
	return m.stopErr
}

// Kill ends the member's current life without warning; like any member that
// ended by itself it is started again.
func (m *Member) Kill() error {
	m.mu.Lock()
	current := m.current
	m.mu.Unlock()
	if current == nil {
		return errors.New(m.name + " does not run")
	}
	return current.kill()
}

// isRemoved reports whether a life ended because the node's cell has removed it.
func isRemoved(err error) bool {
	var here *node.Removed
	var child *exec.ExitError
	return errors.As(err, &here) || errors.As(err, &child) && child.ExitCode() == exitRemoved
}

// staysDown reports whether a member that ended is not to be started again: it was
// removed, or the disk hung under one that lived in this process, and what waits for
// the disk still has its files in use.
func staysDown(err error) bool {
	var hang *stall.Error
	return isRemoved(err) || errors.As(err, &hang)
}

// exitRemoved is the exit code of celld node for it.
const exitRemoved = 3

func (m *Member) set(current instance) {
	m.mu.Lock()
	m.current = current
	m.mu.Unlock()
}

func (m *Member) supervise(ctx context.Context, halt <-chan context.Context, done chan<- struct{}, first chan<- error) {
	defer close(done)
	if m.isolated {
		// The kernel ends a child when the thread that started it ends, so this
		// thread must live as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	// A later launch is not bound to the patience of whoever asked for the first.
	launchCtx := ctx
	pause := restartAfter
	for started := false; ; started = true {
		life, err := m.launch(launchCtx)
		began := time.Now()
		if err == nil {
			m.set(life)
			if err := m.changed(); err != nil {
				m.logger.Error("record the member's process", "node", m.name, "error", err)
			}
		} else if launchCtx.Err() == nil {
			m.onEnd(m.name, err)
		}
		if !started {
			first <- err
			if err != nil && !m.persist {
				return
			}
			launchCtx = context.WithoutCancel(ctx)
		}
		if err == nil {
			select {
			case stopCtx := <-halt:
				err := life.stop(stopCtx)
				m.set(nil)
				m.mu.Lock()
				m.stopErr = err
				m.mu.Unlock()
				return
			case <-life.ended():
				err = life.why()
				m.set(nil)
				if staysDown(err) {
					if isRemoved(err) {
						m.onRemoved(m.name, err)
					} else {
						m.onEnd(m.name, err)
						m.logger.Error("the member stays down until celld is started anew: in this process something still waits for its disk", "node", m.name, "error", err)
					}
					<-halt
					m.mu.Lock()
					m.stopErr = nil
					m.mu.Unlock()
					return
				}
				m.onEnd(m.name, err)
				if time.Since(began) >= steadyAfter || wasKilled(err) {
					pause = restartAfter
				}
			}
		}
		m.logger.Warn("a member ended by itself; it is started again", "node", m.name, "error", err, "reason", "restart", "after", pause.String())
		select {
		case <-halt:
			m.mu.Lock()
			m.stopErr = nil
			m.mu.Unlock()
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, restartMost)
	}
}
