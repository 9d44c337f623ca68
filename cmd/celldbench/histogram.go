package main

import (
	"math"
	"math/bits"
	"time"
)

// histogram counts durations in buckets whose width grows with the value: 64 to
// each doubling, so that a bucket is never wider than 1/64 of what it holds. Its
// size is fixed, and it reaches from a nanosecond to 137 s; what is longer is
// counted in the last bucket.
type histogram struct {
	counts [maxOctave*subBuckets + 2*subBuckets]uint64
	n      uint64
	max    time.Duration
}

const (
	subBuckets = 64
	subBits    = 6
	maxOctave  = 30
)

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile is the least bucket's upper end that a share q of all values does not
// exceed, and never more than the longest value.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if c > 0 && seen >= rank {
			return min(upperEnd(i), h.max)
		}
	}
	return h.max
}

// bucketOf maps v to its bucket: values below 128 have one each, then each
// doubling has 64.
func bucketOf(v uint64) int {
	octave := max(0, bits.Len64(v)-subBits-1)
	if octave > maxOctave {
		return maxOctave*subBuckets + 2*subBuckets - 1
	}
	return octave*subBuckets + int(v>>octave)
}

// upperEnd is the largest value that falls into bucket i.
func upperEnd(i int) time.Duration {
	octave := max(0, i/subBuckets-1)
	step := i - octave*subBuckets
	return time.Duration((step+1)<<octave - 1)
}
