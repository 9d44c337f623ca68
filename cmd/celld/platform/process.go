package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// process is a life of a member as a child process.
type process struct {
	cmd  *exec.Cmd
	out  *tail
	done chan struct{}
	err  error // valid after done
}

// spawn starts binary as a child that ends with this process: the kernel sees to
// it where it can (see endWithParent), and the child itself ends when its
// standard input does. It gets a process group of its own, so that Ctrl-C
// reaches this process alone and the stop has an order.
func spawn(binary string, args []string, log io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), out: &tail{to: &lines{to: log}}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CELLD_") // meant for this process; a child has its settings from its file
	})
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	if _, err := p.cmd.StdinPipe(); err != nil { // closed by the end of this process, or by Wait
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.out.to.flush()
	if err != nil {
		if last := p.out.last(); last != "" && p.cmd.ProcessState.Exited() { // whom a signal ended has not said why
			err = fmt.Errorf("%w; it said: %s", err, last)
		}
	} else {
		err = errors.New("it ended without being asked to")
	}
	p.err = err
	close(p.done)
}

// wasKilled tells whether a signal ended the process that ended with err.
func wasKilled(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

func (p *process) ended() <-chan struct{} { return p.done }
func (p *process) why() error             { return p.err }
func (p *process) pid() int               { return p.cmd.Process.Pid }

func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (p *process) stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.kill())
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		err := p.kill()
		<-p.done
		return errors.Join(errors.New("it did not stop in time and was killed"), err)
	}
	if p.cmd.ProcessState.Success() {
		return nil
	}
	return p.err
}

// tail passes a child's output on and remembers the end of it, to say why the
// child died.
type tail struct {
	mu  sync.Mutex
	to  *lines
	end []byte
}

const tailBytes = 2 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.end = append(t.end, b...)
	if n := len(t.end); n > tailBytes {
		t.end = append(t.end[:0], t.end[n-tailBytes:]...)
	}
	t.mu.Unlock()
	return t.to.Write(b)
}

// last is what celld says at its end, which may have several lines, or the last
// line that another child wrote.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := len(t.end)
	for end > 0 && t.end[end-1] == '\n' {
		end--
	}
	start := end
	for start > 0 && t.end[start-1] != '\n' {
		start--
	}
	if said := bytes.LastIndex(t.end[:end], []byte("\ncelld: ")); said >= 0 {
		start = said + 1
	}
	return string(t.end[start:end])
}
