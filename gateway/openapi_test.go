package gateway

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"celld/gateway/openapitest"
)

// TestRoutesAndDocumentAgree holds the route table against openapi.yaml, both ways.
func TestRoutesAndDocumentAgree(t *testing.T) {
	doc, err := openapitest.Load(OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	described := make(map[string]bool)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			described[method+" "+path+" "+op.OperationID] = true
		}
	}
	for _, r := range Routes() {
		line := r.Method + " " + r.Pattern + " " + r.Name
		if !described[line] {
			t.Errorf("not in the document: %s", line)
			continue
		}
		delete(described, line)
		op := doc.Paths.Find(r.Pattern).GetOperation(r.Method)
		if op.Responses.Value(strconv.Itoa(r.Success)) == nil {
			t.Errorf("%s: the document does not know its success %d", r.Name, r.Success)
		}
		for status := range op.Responses.Map() {
			if strings.HasPrefix(status, "2") && status != strconv.Itoa(r.Success) {
				t.Errorf("%s: the document has the success %s", r.Name, status)
			}
		}
		for _, status := range mustKnow(r) {
			if op.Responses.Value(status) == nil {
				t.Errorf("%s: the document does not know %s", r.Name, status)
			}
		}
		if open := op.Security != nil && len(*op.Security) == 0; open != (r.Target == Public) {
			t.Errorf("%s: in the document it is open: %t", r.Name, open)
		}
	}
	for line := range described {
		t.Errorf("in the document alone: %s", line)
	}
}

// mustKnow are the statuses that any route of its sort can answer.
func mustKnow(r Route) []string {
	all := []string{"400", "431"}
	if r.Target != Public {
		all = append(all, "401", "429", "503")
	}
	if r.Action != 0 {
		all = append(all, "403", "404")
	}
	if slices.Contains([]string{"POST", "PUT", "PATCH"}, r.Method) {
		all = append(all, "413", "415")
	}
	return all
}

func TestEveryRouteHasItsAction(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range Routes() {
		if r.Name == "" || names[r.Name] || r.Target == 0 || r.Success == 0 || r.serve == nil {
			t.Errorf("incomplete or repeated: %+v", r)
		}
		names[r.Name] = true
		if inTenant := strings.Contains(r.Pattern, "{tenant}"); inTenant != (r.Action != 0) {
			t.Errorf("%s: action %d for the path %s", r.Name, r.Action, r.Pattern)
		}
		if r.Target == Cell && r.Action == 0 {
			t.Errorf("%s goes to a cell without a right", r.Name)
		}
	}
}
