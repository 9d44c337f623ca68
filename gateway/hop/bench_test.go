package hop

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"celld/raftfsm/mtls"
)

// BenchmarkHop is one request of a read, and its answer, by 64 callers at once:
// by this package, by what it took the place of, and without a hop. cpu-us/op is
// of both ends.
func BenchmarkHop(b *testing.B) {
	answer := []byte(strings.Repeat("x", 265))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["X-Request-Id"] = r.Header["X-Request-Id"]
		header["Content-Type"] = []string{"application/json"}
		header["Content-Length"] = []string{"265"}
		header["Celld-Index"] = []string{"1.4711"}
		header["Etag"] = []string{`"5"`}
		_, _ = w.Write(answer)
	})
	b.Run("wire", func(b *testing.B) { benchmark(b, overHop(b, h)) })
	b.Run("http", func(b *testing.B) { benchmark(b, overHTTP(b, h)) })
	b.Run("local", func(b *testing.B) { benchmark(b, Local{h}) })
}

// dropped is a writer that keeps the header.
type dropped struct{ header http.Header }

func (d *dropped) Header() http.Header         { return d.header }
func (d *dropped) WriteHeader(int)             {}
func (d *dropped) Write(p []byte) (int, error) { return len(p), nil }

func benchmark(b *testing.B, c Caller) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	token := []string{strings.Repeat("t", 450)}
	var failed atomic.Int64
	begun := cpu()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := Request{Method: "GET", Path: "/tenants/T7/invoices/17", Deadline: time.Now().Add(time.Minute), Header: http.Header{
				"Celld-Context": token, "X-Request-Id": {"abcdefghijklmnopqrstuvwxy"}, "Accept": {"*/*"}}}
			if err := c.Call(ctx, &r, &dropped{make(http.Header, 8)}); err != nil {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64((cpu()-begun).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
	if n := failed.Load(); n > 0 {
		b.Errorf("%d failed", n)
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchPKI(b *testing.B) (server, client *mtls.PKI) {
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if server, err = ca.Issue(mtls.Node("C2", "n1"), time.Now(), time.Hour); err != nil {
		b.Fatal(err)
	}
	if client, err = ca.Issue(mtls.Gateway("G1"), time.Now(), time.Hour); err != nil {
		b.Fatal(err)
	}
	return server, client
}

func overHop(b *testing.B, h http.Handler) Caller {
	own, peer := benchPKI(b)
	config := mtls.ServerConfig(own, Protocol)
	config.DynamicRecordSizingDisabled = true
	l := tls.NewListener(listener(b), config)
	s := NewServer(h, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	config = mtls.ClientConfig(peer, mtls.Node("C2", "n1"), Protocol)
	config.DynamicRecordSizingDisabled = true
	c := NewClient(Config{Dial: func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", l.Addr().String())
	}})
	b.Cleanup(func() {
		c.Close()
		s.Close()
		<-served
	})
	return c
}

// plain is the same contract over HTTP/1.1, as it was before this package.
type plain struct{ *http.Transport }

func (p plain) Call(ctx context.Context, r *Request, w http.ResponseWriter) error {
	ctx, cancel := context.WithDeadline(ctx, r.Deadline)
	defer cancel()
	in := requestHead{method: r.Method, path: r.Path, query: r.Query, header: r.Header}
	req := in.request(ctx, http.NoBody)
	req.URL.Scheme, req.URL.Host = "https", "cell"
	resp, err := p.RoundTrip(req)
	if err != nil {
		return err
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, err = io.Copy(w, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func overHTTP(b *testing.B, h http.Handler) Caller {
	own, peer := benchPKI(b)
	l := tls.NewListener(listener(b), mtls.ServerConfig(own, "http/1.1"))
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	config := mtls.ClientConfig(peer, mtls.Node("C2", "n1"), "http/1.1")
	t := &http.Transport{DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, l.Addr().String())
	}, MaxIdleConnsPerHost: 256, MaxConnsPerHost: 512, DisableCompression: true}
	b.Cleanup(func() {
		t.CloseIdleConnections()
		_ = s.Close()
		<-served
	})
	return plain{t}
}
