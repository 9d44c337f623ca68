package verify

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	done := func(d string) Result { return Result{State: Done, Index: 9, Digest: d} }
	missed := Result{State: Missed}
	voters := func(results ...Result) (out []Replica) {
		for i, r := range results {
			out = append(out, Replica{Member: fmt.Sprint("n", i+1), Voter: true, Result: r})
		}
		return out
	}
	late := append(voters(done("a"), done("a"), done("a")), Replica{Member: "n4", Result: done("b")})
	for name, c := range map[string]struct {
		replicas []Replica
		want     string
	}{
		"all equal":                  {voters(done("a"), done("a"), done("a")), "equal a []"},
		"one alone":                  {voters(done("a")), "equal a []"},
		"one outlier":                {voters(done("a"), done("b"), done("a")), "divergent a [n2]"},
		"two of five":                {voters(done("a"), done("b"), done("a"), done("c"), done("a")), "divergent a [n2 n4]"},
		"an outlier and one away":    {voters(done("a"), done("b"), done("b"), missed, done("b")), "divergent b [n1]"},
		"two replicas differ":        {voters(done("a"), done("b")), "undecided  []"},
		"two of three, one away":     {voters(done("a"), done("b"), missed), "undecided  []"},
		"three ways":                 {voters(done("a"), done("b"), done("c")), "undecided  []"},
		"two against two":            {voters(done("a"), done("b"), done("a"), done("b")), "undecided  []"},
		"one away":                   {voters(done("a"), missed, done("a")), "incomplete a []"},
		"still running":              {voters(done("a"), Result{State: Running}, done("a")), "incomplete a []"},
		"nobody there":               {voters(missed, missed, missed), "incomplete  []"},
		"none":                       {nil, "incomplete  []"},
		"a non-voter differs":        {late, "divergent a [n4]"},
		"another entry is no answer": {voters(done("a"), done("a"), Result{State: Done, Index: 8, Digest: "b"}), "incomplete a []"},
	} {
		j := Judge(c.replicas)
		if got := fmt.Sprint(j.Verdict, " ", j.Digest, " ", j.Outliers); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Whatever replicas say, nobody is an outlier who belongs to a majority, and no
// minority ever condemns anybody.
func TestJudgeNeedsAMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "members")
		var replicas []Replica
		for i := range n {
			r := Result{Index: 9, State: rapid.SampledFrom([]State{Done, Done, Done, Missed, Running}).Draw(t, "state"),
				Digest: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "digest")}
			replicas = append(replicas, Replica{Member: fmt.Sprint(i), Voter: rapid.Bool().Draw(t, "voter"), Result: r})
		}
		j := Judge(replicas)
		for _, out := range j.Outliers {
			var digest string
			for _, r := range replicas {
				if r.Member == out {
					digest = r.Result.Digest
				}
			}
			voters, against := 0, 0
			for _, r := range replicas {
				if r.Voter {
					voters++
					if r.Result.State == Done && r.Result.Digest != digest && r.Result.Digest == j.Digest {
						against++
					}
				}
			}
			if 2*against <= voters {
				t.Fatalf("%s is condemned by %d of %d: %+v", out, against, voters, replicas)
			}
		}
		if (j.Verdict == Divergent) != (len(j.Outliers) > 0) {
			t.Fatalf("%+v", j)
		}
		slices.Reverse(replicas)
		if again := Judge(replicas); fmt.Sprint(again) != fmt.Sprint(j) {
			t.Fatalf("the order matters: %+v and %+v", j, again)
		}
	})
}
