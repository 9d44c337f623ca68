package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive keeps every value.
type naive []time.Duration

func (n naive) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(n))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func TestHistogramAgreesWithItsNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 300),
			rapid.Int64Range(0, int64(time.Millisecond)),
			rapid.Int64Range(0, int64(100*time.Second)),
		), 1, 300).Draw(t, "values")
		split := rapid.IntRange(0, len(values)).Draw(t, "split")
		var a, b Histogram
		var twin naive
		for i, v := range values {
			d := time.Duration(v)
			twin = append(twin, d)
			if i < split {
				a.add(d)
			} else {
				b.add(d)
			}
		}
		a.merge(&b)
		if a.n != uint64(len(values)) || a.most != slices.Max(twin) {
			t.Fatalf("n %d, max %v; want %d, %v", a.n, a.most, len(values), slices.Max(twin))
		}
		for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.99, 1} {
			got, want := a.Quantile(q), twin.quantile(q)
			if got < want || got > want+want/subBuckets {
				t.Fatalf("quantile %v is %d, want %d and at most 1/%d more", q, got, want, subBuckets)
			}
		}
	})
}

func TestBucketsFollowEachOther(t *testing.T) {
	for i := range len(Histogram{}.counts) {
		end := uint64(upperEnd(i))
		if got := bucketOf(end); got != i {
			t.Fatalf("the upper end %d of bucket %d falls into bucket %d", end, i, got)
		}
		if i+1 < len(Histogram{}.counts) {
			if got := bucketOf(end + 1); got != i+1 {
				t.Fatalf("%d follows bucket %d and falls into bucket %d", end+1, i, got)
			}
		}
	}
	var h Histogram
	h.add(math.MaxInt64)
	h.add(-1)
	if h.n != 2 || h.Quantile(1) <= 0 || h.Quantile(0.5) != 0 {
		t.Fatalf("values out of range: n %d, quantiles %v and %v", h.n, h.Quantile(0.5), h.Quantile(1))
	}
}
