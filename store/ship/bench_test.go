package ship

import (
	"bytes"
	"context"
	"io"
	"syscall"
	"testing"
	"time"
)

// benchWorld is a file of so many MiB, in rows of 500 bytes with an index, as tenants'
// files have.
func benchWorld(b *testing.B, mib int) *world {
	b.Helper()
	w := &world{f: newSourceFile(b, b.TempDir())}
	b.Cleanup(func() { must(b, w.f.Close()) })
	for range mib {
		w.exec(b, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1900)
			INSERT INTO note (body, extra) SELECT hex(randomblob(20)), randomblob(440) FROM n`)
	}
	must(b, w.f.Checkpoint())
	var err error
	w.stage, err = OpenStage(stageConfig(b.TempDir()))
	must(b, err)
	b.Cleanup(func() { must(b, w.stage.Close()) })
	return w
}

const benchMiB = 32

// cpu counts the process's CPU time while the benchmark's timer runs: on a machine that
// is busy with other things it says more than the time that passes.
type cpu struct {
	used  time.Duration
	since time.Duration
	bytes int64
}

func cpuNow(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c *cpu) start(b *testing.B) { c.since = cpuNow(b) }

func (c *cpu) stop(b *testing.B, bytes int64) {
	c.used += cpuNow(b) - c.since
	c.bytes += bytes
	b.SetBytes(bytes)
}

func (c *cpu) report(b *testing.B) {
	b.ReportMetric(float64(c.bytes)/1e6/c.used.Seconds(), "MB/cpu-s")
}

// BenchmarkPages is reading, hashing and sending all pages of a file.
func BenchmarkPages(b *testing.B) {
	w := benchWorld(b, benchMiB)
	var c cpu
	for b.Loop() {
		c.start(b)
		s := begin(b, w)
		must(b, s.SendPages(context.Background(), io.Discard, 1))
		must(b, s.Close())
		c.stop(b, s.start.size())
	}
	c.report(b)
}

// BenchmarkTakePages is checking, hashing and storing them, durably.
func BenchmarkTakePages(b *testing.B) {
	w := benchWorld(b, benchMiB)
	s := begin(b, w)
	defer s.Close()
	var all bytes.Buffer
	must(b, s.SendPages(context.Background(), &all, 1))
	var c cpu
	for b.Loop() {
		c.start(b)
		must(b, w.stage.Reset())
		must(b, w.stage.TakePages(context.Background(), bytes.NewReader(all.Bytes())))
		c.stop(b, s.start.size())
	}
	c.report(b)
}

// change has a tail of about the size of the file.
func (w *world) change(b *testing.B) {
	w.exec(b, "UPDATE note SET extra = randomblob(440) WHERE id % 4 = 0")
	must(b, w.f.Commit())
}

// BenchmarkFrames is checking, hashing and sending a round of frames.
func BenchmarkFrames(b *testing.B) {
	w := benchWorld(b, benchMiB)
	s := begin(b, w)
	defer s.Close()
	must(b, s.SendPages(context.Background(), io.Discard, 1))
	at := s.Start().Position
	var c cpu
	for b.Loop() {
		b.StopTimer()
		w.change(b)
		b.StartTimer()
		c.start(b)
		end, err := s.SendRound(context.Background(), io.Discard, at)
		must(b, err)
		c.stop(b, end.Since(at))
		at = end.Position
	}
	c.report(b)
}

// BenchmarkTakeFrames is checking and hashing a round and applying it, durably.
func BenchmarkTakeFrames(b *testing.B) {
	w := benchWorld(b, benchMiB)
	s := begin(b, w)
	defer s.Close()
	must(b, pages(s, w.stage))
	var c cpu
	for b.Loop() {
		b.StopTimer()
		w.change(b)
		var all bytes.Buffer
		at := w.stage.Progress().At.Position
		end, err := s.SendRound(context.Background(), &all, at)
		must(b, err)
		b.StartTimer()
		c.start(b)
		_, err = w.stage.TakeRound(context.Background(), &all)
		must(b, err)
		c.stop(b, end.Since(at))
	}
	c.report(b)
}

// BenchmarkLastRound is what a pause has of a copy: one small write, sent, applied,
// compared, durable.
func BenchmarkLastRound(b *testing.B) {
	w := benchWorld(b, benchMiB)
	s := begin(b, w)
	defer s.Close()
	must(b, pages(s, w.stage))
	var c cpu
	for b.Loop() {
		w.insert(b, 400)
		c.start(b)
		_, err := round(s, w.stage)
		must(b, err)
		c.used += cpuNow(b) - c.since
	}
	b.ReportMetric(float64(c.used.Microseconds())/float64(b.N), "cpu-us/op")
}
