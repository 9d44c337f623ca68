package gateway

import (
	"context"
	"fmt"
	"net"
	"testing"

	"celld/gateway/identity"
	cellnode "celld/node"
	"celld/raftfsm/mtls"
	"celld/store/tenant"
)

// realCell starts a cell of real nodes and registers it.
func (w *world) realCell(t testing.TB, name string, replicas int) map[string]*cellnode.Node {
	t.Helper()
	nodes := make(map[string]*cellnode.Node)
	addresses, listeners := make(map[string]string), make(map[string]net.Listener)
	for i := range replicas {
		n := fmt.Sprintf("n%d", i+1)
		listeners[n] = listen(t)
		addresses[n] = listeners[n].Addr().String()
	}
	for n, l := range listeners {
		started, err := cellnode.Open(t.Context(), cellnode.Config{Cell: tenant.CellName(name), Name: n, Dir: t.TempDir(), Region: "local", Listener: l,
			PKI: issue(t, w.ca, mtls.Node(name, n)), Peers: addresses, Bootstrap: true, ContextKeys: []identity.Key{w.Key()}, Timing: timing()})
		if err != nil {
			t.Fatal(err)
		}
		nodes[n] = started
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			if err := started.Close(ctx); err != nil {
				t.Errorf("close %s/%s: %v", name, n, err)
			}
		})
	}
	w.eventually(t, "cell "+name+" is known", func() error {
		if a := w.operator(t, "POST", "/cells", map[string]any{"name": name, "nodes": addresses}); a.status != 200 {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	return nodes
}

// TestTour is the whole way with a real cell behind the gateway.
func TestTour(t *testing.T) {
	w := newWorld(t, nil)
	w.realCell(t, "C2", 1)
	w.newUsers(t, "U7", "U8", "V7")
	var made struct {
		TenantID string `json:"tenantId"`
	}
	w.call(t, "U7", "POST", "/tenants", map[string]any{"name": "Seven"}).want(t, 201).into(t, &made)
	at := "/tenants/" + made.TenantID
	w.join(t, made.TenantID, "U7", "V7", "viewer")
	w.call(t, "U7", "POST", at+"/customers", map[string]any{"name": "Ann"}).want(t, 201)
	w.call(t, "U7", "POST", at+"/invoices", map[string]any{"customerId": 1, "amountMinor": 100, "currency": "USD"}).want(t, 201)
	first := w.call(t, "V7", "GET", at+"/invoices/1", nil).want(t, 200)
	if first.header.Get("Etag") != `"1"` || first.header.Get("Celld-Index") == "" {
		t.Errorf("headers %v", first.header)
	}
	w.call(t, "V7", "POST", at+"/customers", map[string]any{"name": "Bob"}).want(t, 403)
	w.call(t, "U8", "GET", at+"/invoices/1", nil).want(t, 404)
	w.call(t, "", "GET", at+"/invoices/1", nil).want(t, 401)
	w.call(t, "V7", "GET", at+"/invoices?limit=1", nil).want(t, 200)
	w.call(t, "U7", "GET", "/me", nil).want(t, 200)
	w.call(t, "V7", "DELETE", at+"/members/V7", nil).want(t, 204)
	w.call(t, "V7", "GET", at+"/invoices/1", nil).want(t, 404)
	w.operator(t, "GET", "/cells", nil).want(t, 200)
	w.operator(t, "GET", at+"/replicas", nil).want(t, 200)
	w.operator(t, "POST", at+"/suspend", nil).want(t, 200)
	if got := w.call(t, "U7", "GET", at+"/invoices/1", nil).want(t, 403).problem(t); got != "tenant-suspended" {
		t.Errorf("suspended: %s", got)
	}
	w.operator(t, "POST", at+"/resume", nil).want(t, 200)
	w.call(t, "U7", "GET", at+"/invoices/1", nil).want(t, 200)
	w.operator(t, "GET", "/audit", nil).want(t, 200)
}
