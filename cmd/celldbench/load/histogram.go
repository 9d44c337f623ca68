package load

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width grows with the value: 64 to
// each doubling, so that a bucket is never wider than 1/64 of what it holds. Its
// size is fixed, and it reaches from a nanosecond to 137 s; what is longer is
// counted in the last bucket.
type Histogram struct {
	counts [maxOctave*subBuckets + 2*subBuckets]uint64
	n      uint64
	most   time.Duration
}

const (
	subBuckets = 64
	subBits    = 6
	maxOctave  = 30
)

func (h *Histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))]++
	h.n++
	h.most = max(h.most, d)
}

func (h *Histogram) merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.most = max(h.most, o.most)
}

// Quantile is the least bucket's upper end that a share q of all values does not
// exceed, and never more than the longest value.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if c > 0 && seen >= rank {
			return min(upperEnd(i), h.most)
		}
	}
	return h.most
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

// Max is the longest value.
func (h *Histogram) Max() time.Duration { return h.most }
