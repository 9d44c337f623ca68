package platform

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"celld/cmd/celld/platform/port"
)

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestPortsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, l)
	_, err = (&plan{}).next(l.Addr().String(), nil, "--http")
	if err == nil || !strings.Contains(err.Error(), "--http") || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	first, err := port.Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := (&plan{public: []*port.Port{first}}).next("", []*port.Port{first}, "--http")
	if err != nil {
		t.Fatal(err)
	}
	if second.Addr() == first.Addr() || second.Addr() == l.Addr().String() {
		t.Errorf("the next port is %s", second.Addr())
	}
	if err := errors.Join(first.Release(), second.Release()); err != nil {
		t.Fatal(err)
	}
}

// TestPortsOfGateways: the operator's port follows the public one, as it does by
// default, and a further gateway gets neither.
func TestPortsOfGateways(t *testing.T) {
	pl := &plan{}
	defer func() {
		if err := pl.release(); err != nil {
			t.Error(err)
		}
	}()
	first, err := port.Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pl.public = []*port.Port{first}
	second, err := pl.next("", pl.public, "--http")
	if err != nil {
		t.Fatal(err)
	}
	pl.admins = []*port.Port{second}
	for i := range 4 {
		of := &pl.public
		if i%2 == 1 {
			of = &pl.admins
		}
		p, err := pl.next("", *of, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range slices.Concat(pl.public, pl.admins) {
			if p.Addr() == other.Addr() {
				t.Errorf("%s is given twice", p.Addr())
			}
		}
		*of = append(*of, p)
	}
}

func TestReachable(t *testing.T) {
	for in, want := range map[string]string{
		"0.0.0.0:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "[::]:80": "127.0.0.1:80",
		"127.0.0.1:80": "127.0.0.1:80", "10.0.0.1:80": "10.0.0.1:80", "[::1]:80": "[::1]:80",
	} {
		if got := reachable(in); got != want {
			t.Errorf("%s is called at %s, want %s", in, got, want)
		}
	}
}

func TestTwoPlatformsDoNotShareAFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v", err)
	}
	closed(t, first)
	second, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, second)
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := OpenLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 39) + "\n")
	for range 7 {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, l)
	if _, err := l.Write(line); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed log answers %v", err)
	}
	for name, lines := range map[string]int{path: 1, path + ".old": 2} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(b, []byte("\n")); got != lines || len(b) != got*len(line) {
			t.Errorf("%s holds %d lines in %d bytes, want %d", name, got, len(b), lines)
		}
	}
}

func TestLinesStayWhole(t *testing.T) {
	var buf bytes.Buffer
	l := &lines{to: &buf}
	for _, part := range []string{"a", "b\nc", "", "d\ne\nf"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
		if s := buf.String(); s != "" && !strings.HasSuffix(s, "\n") {
			t.Errorf("passed on %q", s)
		}
	}
	l.flush()
	if got := buf.String(); got != "ab\ncd\ne\nf\n" {
		t.Errorf("got %q", got)
	}
}

func TestWriteFileReplacesAndIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	for _, n := range []int{1, 2} {
		if err := writeJSON(path, n); err != nil {
			t.Fatal(err)
		}
		var got int
		if found, err := readJSON(path, &got); !found || err != nil || got != n {
			t.Errorf("read %d, %v, %v", got, found, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
