package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

type fixed []byte

func (f fixed) next() []byte { return f }

func get(path string) fixed {
	return fixed("GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n")
}

// TestLoadCountsEveryAnswer holds the generator's counts against the server's.
func TestLoadCountsEveryAnswer(t *testing.T) {
	b, err := serveBare([]byte(`{"a":1}`), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	var callers []caller
	for range 4 {
		callers = append(callers, newConn(b.addr, get("/"), http.StatusOK))
	}
	s := slice{callers: callers, warmup: 5 * time.Millisecond, duration: 20 * time.Millisecond, cpu: noCPU}
	warm, measured, err := s.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range callers {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
	if warm.failed+measured.failed != 0 || warm.calls+measured.calls == 0 {
		t.Fatalf("%d of %d calls failed: %v", warm.failed+measured.failed, warm.calls+measured.calls, measured.firstErr)
	}
	if measured.latency.n != measured.calls {
		t.Fatalf("%d latencies of %d calls", measured.latency.n, measured.calls)
	}
}

func TestLoadStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := slice{callers: []caller{newConn("127.0.0.1:1", get("/"), 200)}, warmup: time.Hour, duration: time.Hour, cpu: noCPU}
	if _, _, err := s.run(ctx); err == nil {
		t.Fatal("a slice that was broken off gives no error")
	}
}

func noCPU() (usage, error) { return usage{}, nil }

// TestConnReadsAnswers feeds a connection what a server might say.
func TestConnReadsAnswers(t *testing.T) {
	long := strings.Repeat("x", 3*readBuffer)
	for _, tt := range []struct{ name, answer, wrong string }{
		{"good", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ""},
		{"other case", "HTTP/1.1 200 OK\r\ncontent-length:2\r\nX-Other: 9\r\n\r\n{}", ""},
		{"long body", "HTTP/1.1 200 OK\r\nContent-Length: 24576\r\n\r\n" + long, ""},
		{"no reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", ""},
		{"other status", "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}", "status 503, want 200: {}"},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n", "without Content-Length"},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n{}", "not a number"},
		{"huge length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}", "not a number"},
		{"short body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "EOF"},
		{"not HTTP", "SSH-2.0-x and more\r\n", "not a status line"},
		{"nothing", "", "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConn(answerOnce(t, tt.answer), get("/"), 200)
			err := c.call(t.Context())
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("got %v, want %q", err, tt.wrong)
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// answerOnce serves one connection: it reads a request and writes the answer.
func answerOnce(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1024)); err != nil {
				return err
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return err
			}
			return c.Close()
		}()
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestCPUTimesAreRead(t *testing.T) {
	own, err := ownCPU()
	if err != nil {
		t.Fatal(err)
	}
	same, err := processCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all, err := machineCPU()
	if err != nil {
		t.Fatal(err)
	}
	if own <= 0 || same < 0 || all < own-tick {
		t.Errorf("this process %v, by /proc %v, the machine %v", own, same, all)
	}
	r := result{calls: 1, elapsed: time.Second, cpu: usage{own: time.Second / 2, machine: time.Second}}
	if got, want := r.others(), 0.5/float64(runtime.NumCPU()); got != want {
		t.Errorf("others used %v, want %v", got, want)
	}
}
