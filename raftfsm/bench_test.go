package raftfsm

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkPropose writes from 64 callers to 100 targets on three members over
// loopback TLS. BenchmarkRawApply is the library alone on the same log and
// network: an entry a write, and no files.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkPropose(b, callers) })
	}
}

func benchmarkPropose(b *testing.B, callers int) {
	c := newCluster(b, 3, func(cfg *Config) { cfg.Timing = Timing{} })
	for i := range 100 {
		target := fmt.Sprintf("t%d", i)
		c.must(keyed(b, command(b, cmdOpen, "", open{Target: target}), fmt.Sprint(i)))
		c.settled(c.must(keyed(b, command(b, cmdPut, target, put{K: "k"}), "first")).Index) // opens the file everywhere
	}
	lead := c.leader().group
	ctx := testContext(b)
	var n atomic.Int64
	b.SetParallelism(callers / 2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			cmd := command(b, cmdPut, fmt.Sprintf("t%d", i%100), put{K: "k", V: i})
			cmd.Key = &Key{Actor: "U7", Operation: "put", Key: fmt.Sprint(i)}
			if _, err := lead.Propose(ctx, cmd); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func BenchmarkRawApply(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchmarkRawApply(b, callers) })
	}
}

func benchmarkRawApply(b *testing.B, callers int) {
	c := newCluster(b, 3, func(cfg *Config) { cfg.Timing = Timing{} })
	// One command that every member refuses before it opens a file, of the size of
	// a small write: nearly all of its cost is the library's.
	raw, err := Encode(command(b, cmdPut, "t0", put{K: string(make([]byte, 250))}))
	if err != nil {
		b.Fatal(err)
	}
	data := assembleEntry([][]byte{raw})
	for _, m := range c.members {
		m.files.failing = func(string) error { return ErrKeyReused }
	}
	lead := c.leader().group
	b.SetParallelism(callers / 2)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := lead.raft.Apply(data, 0).Error(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
