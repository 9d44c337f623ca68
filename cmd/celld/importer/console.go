package importer

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
)

// console writes lines to stderr around a progress line that is rewritten in
// place when stderr is a terminal.
type console struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	shown    bool // a progress line stands on the terminal
}

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		c.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return c
}

// line writes one line. Control characters, which may come from a file or from
// the network, don't reach the terminal. A stderr that cannot be written to is
// no reason to stop loading, so errors of writing are dropped here.
func (c *console) line(format string, args ...any) {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, fmt.Sprintf(format, args...))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	fmt.Fprintln(c.w, text)
}

// progress rewrites the progress line, or adds one where there is no terminal.
func (c *console) progress(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.terminal {
		fmt.Fprintln(c.w, text)
		return
	}
	c.clear()
	fmt.Fprint(c.w, text)
	c.shown = true
}

func (c *console) clear() {
	if c.shown {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.shown = false
	}
}
