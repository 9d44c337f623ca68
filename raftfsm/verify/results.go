package verify

import (
	"context"
	"sync"
)

// keptResults is how many marks' results are kept.
const keptResults = 128

// results keeps what the latest marks brought.
type results struct {
	mu     sync.Mutex
	byMark map[string]*kept
	order  []string // oldest first
}

type kept struct {
	result   Result
	final    chan struct{} // closed when result is done or missed
	judged   chan struct{} // closed when it was compared, or will not be
	verdict  Judgement
	isJudged bool
}

// add notes a mark; a mark that is there stays as it is.
func (k *results) add(r Result) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byMark == nil {
		k.byMark = make(map[string]*kept)
	}
	if k.byMark[r.Mark] != nil {
		return false
	}
	if len(k.order) == keptResults {
		old := k.byMark[k.order[0]]
		delete(k.byMark, k.order[0])
		k.order = k.order[1:]
		old.judge(Judgement{Verdict: Incomplete})
	}
	k.byMark[r.Mark] = &kept{result: r, final: make(chan struct{}), judged: make(chan struct{})}
	k.order = append(k.order, r.Mark)
	return true
}

// progress notes how far a digest is.
func (k *results) progress(mark string, rows, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byMark[mark]; e != nil && e.result.State == Running {
		e.result.Rows, e.result.Bytes = rows, bytes
	}
}

// finish notes the result that stays.
func (k *results) finish(r Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byMark[r.Mark]; e != nil && e.result.State == Running {
		e.result = r
		close(e.final)
	}
}

// judge notes what came of comparing.
func (k *results) judge(mark string, j Judgement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byMark[mark]; e != nil {
		e.judge(j)
	}
}

// judge is called with results.mu held.
func (e *kept) judge(j Judgement) {
	if !e.isJudged {
		e.isJudged, e.verdict = true, j
		close(e.judged)
	}
}

func (k *results) find(mark string) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byMark[mark]
}

// wait returns a mark's result when it is final, or as it is when ctx ends.
func (k *results) wait(ctx context.Context, mark string) (Result, bool) {
	e := k.find(mark)
	if e == nil {
		return Result{}, false
	}
	select {
	case <-e.final:
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.result, true
}

// verdict returns what a mark's results said together, false if ctx ends first.
func (k *results) verdict(ctx context.Context, mark string) (Judgement, bool) {
	e := k.find(mark)
	if e == nil {
		return Judgement{}, false
	}
	select {
	case <-e.judged:
		return e.verdict, true // written before judged was closed
	case <-ctx.Done():
		return Judgement{}, false
	}
}
