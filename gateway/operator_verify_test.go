package gateway

import (
	"fmt"
	"testing"

	"celld/raftfsm/verify"
)

func TestVerification(t *testing.T) {
	w, c := fakeWorld(t, nil)
	w.register(t, c, c.addresses())
	const begin = "/tenants/T7/verifications"
	if a := w.operator(t, "GET", begin+"/M1", nil); a.status != 404 {
		t.Errorf("before there was one: %d %s", a.status, a.body)
	}
	var begun, got verificationJSON
	w.operator(t, "POST", begin, nil).want(t, 202).into(t, &begun)
	if begun.ID != "M1" || begun.State != "running" || begun.Verdict != "" || begun.Equal {
		t.Errorf("begun: %+v", begun)
	}
	for name, probe := range map[string]struct {
		finds           verify.Result // at n2
		state, of       string
		verdict         verify.Verdict
		outliers        string
		withoutAnyDrift bool
	}{
		"equal":     {verify.Result{State: verify.Done, Digest: "d1", Index: 9}, "done", "done", verify.Equal, "[]", true},
		"divergent": {verify.Result{State: verify.Done, Digest: "d2", Index: 9}, "done", "done", verify.Divergent, "[n2]", false},
		"running":   {verify.Result{State: verify.Running, Rows: 5}, "running", "running", "", "[]", false},
		"behind":    {verify.Result{}, "running", "behind", "", "[]", false},
		"missed":    {verify.Result{State: verify.Missed, Reason: "no"}, "done", "missed", verify.Incomplete, "[]", false},
	} {
		c.find("n2", probe.finds)
		got = verificationJSON{}
		w.operator(t, "GET", begin+"/M1", nil).want(t, 200).into(t, &got)
		if got.State != probe.state || got.Verdict != probe.verdict || fmt.Sprint(got.Outliers) != probe.outliers || got.Equal != probe.withoutAnyDrift ||
			got.Replicas[1].State != probe.of || got.Index != 9 || got.Replicas[0].Digest != "d1" || got.Replicas[0].Rows != 11 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	c.find("n2", verify.Result{State: verify.Done, Digest: "d2", Index: 9})
	w.operator(t, "GET", "/tenants/T7/replicas", nil).want(t, 200).into(t, &got)
	if got.Equal || got.Verdict != verify.Divergent {
		t.Errorf("%+v", got)
	}
	// Another tenant's verification is none of this one's.
	if a := w.operator(t, "GET", "/tenants/T8/verifications/M1", nil); a.status != 404 {
		t.Errorf("asked for another tenant: %d %s", a.status, a.body)
	}
	for path, want := range map[string]int{"/tenants/T99/verifications": 404, begin + "?x=1": 400} {
		if a := w.operator(t, "POST", path, nil); a.status != want {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	var page pageJSON[auditJSON]
	w.operator(t, "GET", "/audit?tenant=T7", nil).want(t, 200).into(t, &page)
	rows := 0
	for _, e := range page.Items {
		if e.Action == "verify-tenant" && e.Tenant == "T7" {
			rows++
		}
	}
	if rows != 1 {
		t.Errorf("%d audit rows for one verification", rows)
	}
}
