package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"celld/raftfsm"
)

const (
	// behindTime is how long a member that has not applied a mark yet is waited
	// for; one that is digesting is waited for as long as it may take.
	behindTime = 15 * time.Second
	askAgain   = 200 * time.Millisecond
	askTries   = 3 // of a member that is not there
)

// compare asks the other members what they found at the mark of own, judges, and
// acts where this member is the one that differs.
func (v *Verifier) compare(own Result) {
	ctx, cancel := context.WithTimeout(v.ctx, pinTime+behindTime)
	defer cancel()
	replicas, err := v.collect(ctx, own)
	if err != nil || v.ctx.Err() != nil {
		v.results.judge(own.Mark, Judgement{Verdict: Incomplete})
		return
	}
	j := Judge(replicas)
	v.schedule.judge(own.Target, j.Verdict)
	v.metrics.verdicts.WithLabelValues(string(j.Verdict)).Inc()
	v.act(own, replicas, j)
	v.results.judge(own.Mark, j)
}

func (v *Verifier) collect(ctx context.Context, own Result) ([]Replica, error) {
	members, err := (*v.group.Load()).Servers()
	if err != nil {
		return nil, err
	}
	replicas := make([]Replica, len(members))
	var wait sync.WaitGroup
	for i, m := range members {
		replicas[i] = Replica{Member: m.Name, Voter: m.Voter, Result: own}
		if m.Name != v.cfg.Self {
			wait.Go(func() { replicas[i].Result = v.ask(ctx, m, own.Mark) })
		}
	}
	wait.Wait()
	return replicas, nil
}

// ask returns another member's result, or why there is none.
func (v *Verifier) ask(ctx context.Context, member raftfsm.Member, mark string) Result {
	ended := time.Now().Add(behindTime)
	for tries := 1; ; {
		r, err := v.cfg.Ask(ctx, member, mark)
		switch {
		case err == nil && r.State != Running:
			return r
		case err == nil: // it waited for us there
		case errors.Is(err, ErrNoMark) && time.Now().Before(ended):
			await(ctx, askAgain)
		case errors.Is(err, ErrNoMark) || tries == askTries:
			return Result{Mark: mark, State: Missed, Reason: err.Error()}
		default:
			tries++
			await(ctx, askAgain)
		}
		if ctx.Err() != nil {
			return Result{Mark: mark, State: Missed, Reason: "it took too long"}
		}
	}
}

// act says what is wrong, and gives this member's file up if it is the one.
func (v *Verifier) act(own Result, replicas []Replica, j Judgement) {
	log := v.cfg.Logger.With("target", own.Target, "index", own.Index, "digest", own.Digest, "replicas", Describe(replicas))
	switch j.Verdict {
	case Undecided:
		v.metrics.divergent.Inc()
		log.Error("replicas differ and no majority of them agrees: nothing is done about it; find out which one is right, and replace the others")
		return
	case Divergent:
	default:
		log.Debug("replicas compared", "verdict", string(j.Verdict))
		return
	}
	if !slices.Contains(j.Outliers, v.cfg.Self) {
		log.Error("another replica differs from the majority, which this one belongs to", "majority", j.Digest, "outliers", j.Outliers)
		return
	}
	v.metrics.divergent.Inc()
	if v.cfg.Condemn == nil {
		log.Error("this replica differs from the majority: replace this member", "majority", j.Digest)
		return
	}
	log.Error("this replica differs from the majority: it gives its file up and fetches another one", "majority", j.Digest)
	reason := fmt.Sprintf("at index %d its digest is %s and the majority's %s", own.Index, own.Digest, j.Digest)
	if err := v.cfg.Condemn(own.Target, reason); err != nil {
		log.Error("the file could not be given up", "error", err)
	}
}
