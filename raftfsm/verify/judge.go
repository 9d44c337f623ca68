package verify

import (
	"slices"
	"strings"
)

// State is how far a replica's look at a mark has come.
type State string

const (
	Running State = "running" // the digest is being computed
	Done    State = "done"
	Missed  State = "missed" // there will be no digest; Reason says why
)

// Result is what one replica found at a mark.
type Result struct {
	Mark     string `json:"mark"`
	Target   string `json:"target"` // a tenant's uid; "" is the group's own file
	State    State  `json:"state"`
	Index    uint64 `json:"index"` // the mark's log entry: the content is that of all entries up to it
	Applied  uint64 `json:"appliedIndex"`
	Sequence uint64 `json:"sequence"`
	Digest   string `json:"digest"` // SHA-256, hexadecimal
	Rows     int64  `json:"rows"`   // read so far
	Bytes    int64  `json:"bytes"`  // likewise
	Reason   string `json:"reason"`
}

// Verdict is what the results of all replicas say together.
type Verdict string

const (
	Equal      Verdict = "equal"
	Divergent  Verdict = "divergent"  // a majority of the voters agrees; Outliers differ from it
	Undecided  Verdict = "undecided"  // replicas differ and no majority agrees
	Incomplete Verdict = "incomplete" // what is there is equal, but not all are there
)

// Replica is one member with its result.
type Replica struct {
	Member string
	Voter  bool
	Result Result
}

// Judgement is a verdict with its grounds.
type Judgement struct {
	Verdict  Verdict
	Digest   string   // of the majority, where there is one
	Outliers []string // members that differ from it
}

// Judge compares results at one mark. A digest of another log entry than the
// latest counts as missing.
func Judge(replicas []Replica) Judgement {
	var index uint64
	for _, r := range replicas {
		if r.Result.State == Done {
			index = max(index, r.Result.Index)
		}
	}
	votes, voters, missing := make(map[string]int), 0, 0
	for _, r := range replicas {
		if r.Voter {
			voters++
		}
		if !r.Result.counts(index) {
			missing++
			continue
		}
		if r.Voter {
			votes[r.Result.Digest]++
		} else {
			votes[r.Result.Digest] += 0
		}
	}
	var j Judgement
	for digest, n := range votes {
		if 2*n > voters {
			j.Digest = digest
		}
	}
	switch {
	case len(votes) > 1 && j.Digest == "":
		j.Verdict = Undecided
	case len(votes) > 1:
		j.Verdict = Divergent
		for _, r := range replicas {
			if r.Result.counts(index) && r.Result.Digest != j.Digest {
				j.Outliers = append(j.Outliers, r.Member)
			}
		}
		slices.Sort(j.Outliers)
	case missing > 0 || len(replicas) == 0:
		j.Verdict = Incomplete
	default:
		j.Verdict = Equal
	}
	return j
}

func (r Result) counts(index uint64) bool { return r.State == Done && r.Index == index }

// Describe lists the results, one clause a member, for a person.
func Describe(replicas []Replica) string {
	parts := make([]string, len(replicas))
	for i, r := range replicas {
		if r.Result.State == Done {
			parts[i] = r.Member + ": " + r.Result.Digest
		} else {
			parts[i] = r.Member + ": " + string(r.Result.State) + " (" + r.Result.Reason + ")"
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
