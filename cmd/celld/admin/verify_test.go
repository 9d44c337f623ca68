package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"celld/gateway/problem"
	"celld/store/fault"
)

// verifying answers as a gateway does: the verification is unknown at first, then
// running, then as given.
func verifying(t *testing.T, last string) (http.HandlerFunc, *int) {
	asked := 0
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /tenants/T7/verifications":
			w.WriteHeader(http.StatusAccepted)
			answer(w, `{"verificationId":"M1","tenantId":"T7","state":"running","equal":false,"replicas":[]}`)
		case "GET /tenants/T7/verifications/M1":
			asked++
			switch asked {
			case 1:
				problem.Write(w, r, fault.Unknown())
			case 2:
				answer(w, `{"verificationId":"M1","tenantId":"T7","state":"running","equal":false,"replicas":[{"node":"n1","state":"running","rows":5},{"node":"n2","state":"behind","rows":0}]}`)
			default:
				answer(w, "%s", last)
			}
		default:
			problem.Write(w, r, fault.Unknown())
		}
	}, &asked
}

func TestTenantVerify(t *testing.T) {
	const replicas = `"replicas":[{"node":"n1","state":"done","appliedIndex":7,"sequence":3,"rows":5,"digest":"d1"},{"node":"n2","state":"done","appliedIndex":7,"sequence":3,"rows":5,"digest":"d2"}]}`
	for name, c := range map[string]struct{ verdict, slug string }{
		"equal":     {`"verdict":"equal","equal":true,`, ""},
		"divergent": {`"verdict":"divergent","outliers":["n2"],"equal":false,`, "replicas-differ"},
		"undecided": {`"verdict":"undecided","equal":false,`, "replicas-differ"},
		"one away":  {`"verdict":"incomplete","equal":false,`, "replicas-missing"},
	} {
		h, asked := verifying(t, `{"verificationId":"M1","tenantId":"T7","cell":"C2","epoch":1,"index":9,"state":"done",`+c.verdict+replicas)
		out, err := operate(t, h, "tenant", "verify", "T7")
		if (err == nil) != (c.slug == "") || err != nil && fault.As(err).Slug != c.slug {
			t.Errorf("%s: %v", name, err)
		}
		if *asked != 3 || !strings.Contains(out, "n2") || !strings.Contains(out, "d2") || !strings.Contains(out, "SEQUENCE") {
			t.Errorf("%s: after %d questions:\n%s", name, *asked, out)
		}
		*asked = 1
		out, _ = operate(t, h, "tenant", "verify", "T7", "--json")
		var doc struct {
			ID       string `json:"verificationId"`
			Type     string `json:"type"`
			Replicas []struct{ Digest string }
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.ID != "M1" || doc.Type != c.slug || len(doc.Replicas) != 2 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if _, err := operate(t, func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, fault.Unknown()) }, "tenant", "verify", "T99"); fault.Of(err) != fault.NotFound || !strings.Contains(err.Error(), "T99") {
		t.Errorf("no such tenant: %v", err)
	}
}
