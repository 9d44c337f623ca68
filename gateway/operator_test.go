package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func operatorPath(pattern string) string {
	return strings.NewReplacer("{tenant}", "T7", "{user}", "U7", "{cell}", "C2", "{node}", "n9").Replace(pattern)
}

func TestOperatorCredentials(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	for _, r := range operatorRoutes() {
		for name, token := range map[string]string{"nobody": "", "a user": w.tokens["U7"], "half a token": operatorToken[:10], "a longer token": operatorToken + "x"} {
			a := w.do(t, w.admin, token, request{method: r.method, path: operatorPath(r.pattern)})
			if r.open && a.status != 200 || !r.open && (a.status != 401 || a.problem(t) != "unauthenticated") {
				t.Errorf("%s to %s: %d %s", r.name, name, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/", "/nothing", "/tenants/T7/invoices/17", "/me"} {
		w.do(t, w.admin, "", request{method: "GET", path: path}).want(t, 401)
		w.operator(t, "GET", path, nil).want(t, 404)
	}
	a := w.do(t, w.admin, "", request{method: "PUT", path: "/tenants"}).want(t, 401)
	if a.header.Get("Allow") != "" {
		t.Error("nobody is told of methods")
	}
	if a := w.operator(t, "PUT", "/tenants", nil).want(t, 405); a.header.Get("Allow") != "GET, POST" {
		t.Errorf("Allow %q", a.header.Get("Allow"))
	}
	w.operator(t, "GET", "/tenants//T7", nil).want(t, 400)
	if !strings.Contains(w.log.String(), `"reason":"unauthenticated"`) {
		t.Error("refused credentials are not in the log")
	}
	if strings.Contains(w.log.String(), operatorToken) || strings.Contains(w.log.String(), w.tokens["U7"]) {
		t.Error("the log has a credential")
	}
}

// TestOperatorAudit: each call leaves a row, those that only look as well.
func TestOperatorAudit(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	bodies := map[string]any{
		"create-user": map[string]any{"email": "new@example.org", "name": "N", "password": "long enough"}, "create-token": map[string]any{"name": "second"},
		"create-tenant": map[string]any{"tenantId": "T9", "name": "Nine", "owner": "X0", "cell": "C2", "tier": "pooled"},
		"put-cell":      map[string]any{"name": "C2", "region": "local", "nodes": map[string]string{"n1": "127.0.0.1:1", "n2": "127.0.0.1:1", "n3": "127.0.0.1:1"}, "capacity": 100},
		"add-node":      map[string]any{"node": "n2", "address": "127.0.0.1:1"}, "remove-node": map[string]any{},
	}
	rows := func() []auditJSON {
		var page pageJSON[auditJSON]
		w.operator(t, "GET", "/audit?limit=500", nil).want(t, 200).into(t, &page)
		return page.Items
	}
	for _, r := range operatorRoutes() {
		if r.open {
			continue
		}
		before := rows()
		target := operatorPath(r.pattern)
		if r.name == "revoke-token" {
			var tokens pageJSON[listedTokenJSON]
			w.operator(t, "GET", target[:strings.LastIndex(target, "/")], nil).want(t, 200).into(t, &tokens)
			target = target[:strings.LastIndex(target, "/")+1] + tokens.Items[0].TokenID
		}
		if r.name == "show-verification" {
			target = target[:strings.LastIndex(target, "/")+1] + "M1"
		}
		a := w.operator(t, r.method, target, bodies[r.name])
		if a.status != 200 && a.status != 201 && a.status != 202 && a.status != 204 {
			t.Errorf("%s: %d %s", r.name, a.status, a.body)
		}
		if r.name == "show-verification" {
			continue // verify-tenant, which it follows, left the row
		}
		found := slices.ContainsFunc(rows(), func(e auditJSON) bool {
			return e.ID > before[0].ID+1 && strings.HasPrefix(e.Actor, "operator:") && (r.changes || e.Action == r.name)
		})
		if !found {
			t.Errorf("%s left no row", r.name)
		}
	}
}

// TestRevokedToken: once a token's end has been answered nobody gets in with it, and
// the user's other tokens go on.
func TestRevokedToken(t *testing.T) {
	w := newWorld(t, nil)
	var made [2]tokenJSON
	w.operator(t, "POST", "/users", map[string]any{"userId": "P1", "email": "p1@example.org"}).want(t, 201).into(t, &made[0])
	w.operator(t, "POST", "/users/P1/tokens", map[string]any{"name": "second"}).want(t, 201).into(t, &made[1])
	with := func(i int) answer {
		return w.do(t, w.public, made[i].Token, request{method: "GET", path: "/me"})
	}
	with(0).want(t, 200)
	with(1).want(t, 200)
	w.operator(t, "DELETE", "/users/P1/tokens/"+made[0].TokenID, nil).want(t, 204)
	with(0).want(t, 401)
	with(1).want(t, 200)
	var left pageJSON[listedTokenJSON]
	w.operator(t, "GET", "/users/P1/tokens", nil).want(t, 200).into(t, &left)
	if len(left.Items) != 1 || left.Items[0].TokenID != made[1].TokenID || left.Items[0].Name != "second" {
		t.Errorf("left: %+v", left.Items)
	}
	for _, path := range []string{"/users/P1/tokens/" + made[0].TokenID, "/users/P2/tokens/" + made[1].TokenID, "/users/P1/tokens/x"} {
		w.operator(t, "DELETE", path, nil).want(t, 404)
	}
	w.operator(t, "GET", "/users/P2/tokens", nil).want(t, 404)
	with(1).want(t, 200)
}

// TestPasswordIsNotHashed: what is kept of a payload under a key does not tell the
// password, so another one is not noticed; the lack of one is.
func TestPasswordIsNotHashed(t *testing.T) {
	w := newWorld(t, nil)
	create := func(password string) answer {
		return w.do(t, w.admin, operatorToken, request{method: "POST", path: "/users", header: http.Header{"Idempotency-Key": {"k"}},
			body: map[string]any{"userId": "P1", "email": "p1@example.org", "password": password}})
	}
	create("the first password").want(t, 201)
	if a := create("another password").want(t, 201); a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("answered %v %s", a.header, a.body)
	}
	create("").want(t, 422)
	for password, status := range map[string]int{"the first password": 201, "another password": 401} {
		w.call(t, "", "POST", "/sessions", map[string]any{"email": "p1@example.org", "password": password}).want(t, status)
	}
}

func TestOperatorCells(t *testing.T) {
	w, c := fakeWorld(t, nil)
	var cell cellJSON
	w.operator(t, "GET", "/cells/C2", nil).want(t, 200).into(t, &cell)
	if cell.Key != c.key || cell.Tenants != 2 || len(cell.Nodes) != 3 || !cell.Nodes[0].Leader || cell.Nodes[1].Leader || !cell.Nodes[2].Healthy || cell.Nodes[0].Applied != 7 {
		t.Errorf("cell %+v", cell)
	}
	w.operator(t, "GET", "/cells/C9", nil).want(t, 404)

	// A node that can't be reached is shown as such; a cell none of whose nodes can
	// is not registered, nor one whose nodes are others.
	four := c.addresses()
	four["n4"] = "127.0.0.1:1"
	w.operator(t, "POST", "/cells", map[string]any{"name": "C2", "nodes": four, "region": "local"}).want(t, 200).into(t, &cell)
	if len(cell.Nodes) != 4 || cell.Nodes[3].Healthy || cell.Nodes[3].Problem == "" {
		t.Errorf("cell %+v", cell)
	}
	if a := w.operator(t, "POST", "/cells", map[string]any{"name": "C3", "nodes": map[string]string{"n1": "127.0.0.1:1"}}).want(t, 503); a.problem(t) != "cell-unreachable" {
		t.Errorf("%s", a.body)
	}
	for name, body := range map[string]string{"no nodes": `{"name":"C2","nodes":{}}`, "no name": `{"nodes":{"n1":"a:1"}}`, "bad name": `{"name":"2","nodes":{"n1":"a:1"}}`,
		"bad node": `{"name":"C2","nodes":{"n/1":"a:1"}}`, "bad tier": `{"name":"C2","tier":"gold","nodes":{"n1":"a:1"}}`, "unknown field": `{"name":"C2","key":"k"}`, "negative": `{"name":"C2","capacity":-1}`} {
		if a := w.operator(t, "POST", "/cells", body); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	var replicas verificationJSON
	w.register(t, c, c.addresses())
	w.operator(t, "GET", "/tenants/T7/replicas", nil).want(t, 200).into(t, &replicas)
	if !replicas.Equal || len(replicas.Replicas) != 3 || replicas.Replicas[1].Digest != "d1" {
		t.Errorf("replicas %+v", replicas)
	}
}

func TestOperatorTenants(t *testing.T) {
	w, c := fakeWorld(t, nil)
	var one operatorTenant
	w.operator(t, "GET", "/tenants/T7", nil).want(t, 200).into(t, &one)
	if one.Cell != "C2" || one.Epoch != 1 || !one.UID.Valid() || len(one.Owners) != 1 || one.Owners[0] != "U7" || one.Members != 4 {
		t.Errorf("tenant %+v", one)
	}
	var page pageJSON[operatorTenant]
	w.operator(t, "GET", "/tenants?limit=1", nil).want(t, 200).into(t, &page)
	if len(page.Items) != 1 || page.Next != "T7" {
		t.Errorf("page %+v", page)
	}
	w.operator(t, "GET", "/tenants?limit=1&cursor=T7", nil).want(t, 200).into(t, &page)
	if len(page.Items) != 1 || page.Items[0].TenantID != "T8" {
		t.Errorf("page %+v", page)
	}
	for _, query := range []string{"?limit=0", "?limit=x", "?nope=1", "?limit=1&limit=2"} {
		w.operator(t, "GET", "/tenants"+query, nil).want(t, 400)
	}
	for _, id := range []string{"T99", "7", "T%2e7"} {
		if a := w.operator(t, "GET", "/tenants/"+id, nil); a.status != 404 {
			t.Errorf("%s: %d", id, a.status)
		}
	}

	key := http.Header{"Idempotency-Key": {"k"}}
	make9 := request{method: "POST", path: "/tenants", body: map[string]any{"tenantId": "T9", "name": "Nine", "owner": "X0", "cell": "C2"}, header: key}
	first := w.do(t, w.admin, operatorToken, make9).want(t, 201)
	again := w.do(t, w.admin, operatorToken, make9).want(t, 201)
	if first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%v %s", first.body, again.header, again.body)
	}
	make9.header = nil
	w.do(t, w.admin, operatorToken, make9).want(t, 409)

	w.operator(t, "POST", "/tenants/T7/suspend", nil).want(t, 200)
	c.all()
	for _, r := range Routes() {
		if r.Action == 0 {
			continue
		}
		if a := w.through(t, r, "U7", "T7", nil); a.status != 403 || a.problem(t) != "tenant-suspended" {
			t.Errorf("%s of a suspended tenant: %d %s", r.Name, a.status, a.body)
		}
		w.through(t, r, "X0", "T7", nil).want(t, 404)
	}
	if got := c.all(); len(got) > 0 {
		t.Errorf("came to the cell: %+v", got)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(w.operator(t, "POST", "/tenants/T7/resume", nil).want(t, 200).body), &out); err != nil || out["suspended"] != false {
		t.Errorf("%v %v", out, err)
	}
	w.call(t, "U7", "GET", invoice, nil).want(t, 200)
}
