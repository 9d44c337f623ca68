package verify

import (
	"context"
	"fmt"
	"testing"
)

func TestResultsAreBounded(t *testing.T) {
	var k results
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range keptResults + 5 {
		if !k.add(Result{Mark: fmt.Sprint(i), State: Running}) || k.add(Result{Mark: fmt.Sprint(i)}) {
			t.Fatal("added twice, or not at all")
		}
	}
	if len(k.byMark) != keptResults || len(k.order) != keptResults {
		t.Errorf("%d results are kept", len(k.byMark))
	}
	if _, known := k.wait(gone, "0"); known {
		t.Error("the oldest is still there")
	}
	if r, known := k.wait(gone, "100"); !known || r.State != Running {
		t.Errorf("%+v %v", r, known)
	}
	k.progress("100", 3, 4)
	if r, _ := k.wait(gone, "100"); r.Rows != 3 || r.Bytes != 4 {
		t.Errorf("%+v", r)
	}
	k.finish(Result{Mark: "100", State: Done, Digest: "d"})
	k.finish(Result{Mark: "100", State: Missed})
	k.progress("100", 9, 9)
	if r, _ := k.wait(t.Context(), "100"); r.State != Done || r.Rows != 0 {
		t.Errorf("the first final result stays: %+v", r)
	}
	if _, judged := k.verdict(gone, "100"); judged {
		t.Error("judged by nobody")
	}
	k.judge("100", Judgement{Verdict: Equal})
	k.judge("100", Judgement{Verdict: Undecided})
	if j, judged := k.verdict(t.Context(), "100"); !judged || j.Verdict != Equal {
		t.Errorf("%+v %v", j, judged)
	}
}
