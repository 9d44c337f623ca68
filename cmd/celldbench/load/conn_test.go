package load

import (
	"io"
	"net"
	"strings"
	"testing"
)

func get(path string) Same {
	return Same("GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n")
}

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
			c := NewConn(answerOnce(t, tt.answer), get("/"), 200)
			_, err := c.Call(t.Context())
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("got %v, want %q", err, tt.wrong)
			}
			if err := c.Close(); err != nil {
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
