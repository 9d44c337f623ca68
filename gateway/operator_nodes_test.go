package gateway

import (
	"strings"
	"testing"

	"celld/store/fault"
)

// TestOperatorNodes: a node is added to directory and cell and removed from both,
// each step only where it is missing.
func TestOperatorNodes(t *testing.T) {
	w, c := fakeWorld(t, nil)
	three := c.addresses()
	delete(three, "n3")
	c.set(func() { c.out["n3"], c.catching = true, "n3" })
	w.register(t, c, three)
	add := map[string]any{"node": "n3", "address": "127.0.0.1:1", "reason": "more of them"}
	known := func() int {
		var cell cellJSON
		w.operator(t, "GET", "/cells/C2", nil).want(t, 200).into(t, &cell)
		return len(cell.Nodes)
	}

	// The leader's refusal is the answer, and leaves the directory as it was.
	c.set(func() { c.refuses = fault.New(fault.Conflict, "node-is-another", "remove it first") })
	if a := w.operator(t, "POST", "/cells/C2/nodes", add).want(t, 409); a.problem(t) != "node-is-another" || known() != 2 {
		t.Errorf("%s, and %d nodes", a.body, known())
	}
	c.set(func() { c.refuses = nil })
	for range 2 {
		var change nodeChangeJSON
		w.operator(t, "POST", "/cells/C2/nodes", add).want(t, 202).into(t, &change)
		if change.State != nodeCatchingUp || change.ServerID != "n3~x" || change.Voters != 2 || change.Applied != 7 || change.Leader != 9 || known() != 3 {
			t.Errorf("%+v", change)
		}
	}
	c.set(func() { c.catching = "" })
	add["wait"] = true
	var change nodeChangeJSON
	w.operator(t, "POST", "/cells/C2/nodes", add).want(t, 200).into(t, &change)
	if change.State != nodeVoter || change.Voters != 3 {
		t.Errorf("%+v", change)
	}

	c.set(func() { c.refuses = fault.New(fault.Conflict, "quorum-at-risk", "no") })
	if a := w.operator(t, "POST", "/cells/C2/nodes/n2/remove", map[string]any{"reason": "a first attempt"}).want(t, 409); a.problem(t) != "quorum-at-risk" || known() != 3 {
		t.Errorf("%s", a.body)
	}
	c.set(func() { c.refuses = nil })
	for range 2 {
		w.operator(t, "POST", "/cells/C2/nodes/n2/remove", map[string]any{"reason": "worn out"}).want(t, 200).into(t, &change)
		if change.State != nodeRemoved || change.Voters != 2 || known() != 2 {
			t.Errorf("%+v", change)
		}
	}
	for path, body := range map[string]string{
		"/cells/C2/nodes": `{"node":"4","address":"h:1"}`, "/cells/C2/nodes/": `{}`, "/cells/C2/nodes/n1/remove": `{"why":"x"}`,
		"/cells/C2/nodes/n1/remove?x=1": `{}`,
	} {
		if a := w.operator(t, "POST", path, body); a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/cells/C9/nodes", "/cells/C9/nodes/n1/remove", "/cells/C2/nodes/1/remove"} {
		body := map[string]any{}
		if strings.HasSuffix(path, "nodes") {
			body = add
		}
		w.operator(t, "POST", path, body).want(t, 404)
	}
	if a := w.operator(t, "POST", "/cells/C2/nodes", map[string]any{"node": "n9", "address": "127.0.0.1:1"}).want(t, 409); a.problem(t) != "node-unreachable" {
		t.Errorf("%s", a.body)
	}

	rows := w.operator(t, "GET", "/audit?limit=500", nil).want(t, 200).body
	for _, row := range []string{`127.0.0.1:1: more of them`, `worn out`, `a first attempt`} {
		if !strings.Contains(rows, row) {
			t.Errorf("the audit lacks %s", row)
		}
	}
}

// TestPutCellKeepsWhatIsLeftOut: describing a cell anew resets nothing.
func TestPutCellKeepsWhatIsLeftOut(t *testing.T) {
	w, c := fakeWorld(t, nil)
	w.operator(t, "POST", "/cells", map[string]any{"name": "C2", "capacity": 77, "state": "draining", "nodes": c.addresses()}).want(t, 200)
	var cell cellJSON
	w.operator(t, "POST", "/cells", map[string]any{"name": "C2"}).want(t, 200).into(t, &cell)
	if cell.Capacity != 77 || cell.State != "draining" || cell.Region != "local" || len(cell.Nodes) != 3 {
		t.Errorf("%+v", cell)
	}
	w.operator(t, "POST", "/cells", map[string]any{"name": "C2", "state": "active"}).want(t, 200).into(t, &cell)
	if cell.Capacity != 77 || cell.State != "active" {
		t.Errorf("%+v", cell)
	}
	w.operator(t, "POST", "/cells", map[string]any{"name": "C3"}).want(t, 400)
}
