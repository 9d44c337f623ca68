package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSaga: creating a tenant may stop half-way; the same request finishes it, and
// so does the directory's leader.
func TestSaga(t *testing.T) {
	w, c := fakeWorld(t, nil)
	create := func(key, name string) answer {
		return w.send(t, request{user: "X0", method: "POST", path: "/tenants", body: map[string]any{"name": name}, header: http.Header{"Idempotency-Key": {key}}})
	}
	var tenants struct {
		Items []struct {
			TenantID, State, Name string
		}
	}
	c.breakProvisioning(true)
	a := create("k1", "One").want(t, 503)
	if a.problem(t) != "tenant-provisioning" || a.header.Get("Retry-After") == "" {
		t.Errorf("answered %s", a.body)
	}
	w.call(t, "X0", "GET", "/tenants", nil).want(t, 200).into(t, &tenants)
	if len(tenants.Items) != 1 || tenants.Items[0].State != "provisioning" {
		t.Fatalf("tenants %+v", tenants)
	}
	id := tenants.Items[0].TenantID
	if a := w.call(t, "X0", "GET", "/tenants/"+id+"/invoices", nil).want(t, 503); a.problem(t) != "tenant-provisioning" {
		t.Errorf("in between: %s", a.body)
	}
	w.call(t, "U7", "GET", "/tenants/"+id+"/invoices", nil).want(t, 404)
	c.breakProvisioning(false)
	first := create("k1", "One").want(t, 201)
	again := create("k1", "One").want(t, 201)
	if !strings.Contains(first.body, id) || first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("first %s\nagain %v %s", first.body, again.header, again.body)
	}
	w.call(t, "X0", "GET", "/tenants/"+id+"/invoices", nil).want(t, 200)
	if a := create("k1", "Other").want(t, 422); a.problem(t) != "idempotency-key-reused" {
		t.Errorf("another payload: %s", a.body)
	}

	c.breakProvisioning(true)
	create("k2", "Two").want(t, 503)
	c.breakProvisioning(false)
	w.resumeOnce(t.Context(), time.Now().Add(-time.Hour)) // too young
	w.call(t, "X0", "GET", "/tenants", nil).want(t, 200).into(t, &tenants)
	states := func() string {
		w.call(t, "X0", "GET", "/tenants", nil).want(t, 200).into(t, &tenants)
		all := map[string]string{}
		for _, i := range tenants.Items {
			all[i.Name] = i.State
		}
		return fmt.Sprint(all)
	}
	if got := states(); got != "map[One:active Two:provisioning]" {
		t.Errorf("before: %s", got)
	}
	w.resumeOnce(t.Context(), time.Now().Add(time.Hour))
	if got := states(); got != "map[One:active Two:active]" {
		t.Errorf("after: %s", got)
	}
}

// TestFreshness: a gateway that has lost the directory's quorum answers nothing,
// or where it is told so nothing but stale reads that were asked for.
func TestFreshness(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("staleReads %v", allowed), func(t *testing.T) { testFreshness(t, allowed) })
	}
}

func testFreshness(t *testing.T, allowed bool) {
	c := newFakeCell(t, "C2", "n1", "n2", "n3")
	all := newWorlds(t, 2, func(cfg *Config) { cfg.Local, cfg.StaleReads = c.handlers(), allowed })
	w, other := all[0], all[1]
	w.register(t, c, c.addresses())
	w.people(t)
	w.call(t, "V7", "GET", invoice, nil).want(t, 200)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the directory's quorum is missed", func() error {
		if a := w.call(t, "V7", "GET", invoice, nil); a.status != 503 || a.problem(t) != "directory-not-fresh" {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	stale := http.Header{"Celld-Consistency": {"stale"}}
	for _, r := range Routes() {
		if r.Target == Public {
			continue
		}
		if a := w.through(t, r, "U7", "T7", nil); a.status != 503 {
			t.Errorf("%s: %d %s", r.Name, a.status, a.body)
		}
		want := 503
		if allowed && r.Target == Cell && r.Method == "GET" {
			want = 200
		}
		if a := w.through(t, r, "U7", "T7", stale); a.status != want {
			t.Errorf("%s, stale: %d %s", r.Name, a.status, a.body)
		}
	}
	// The last known rights still count.
	for user, want := range map[string]int{"": 401, "X0": 404, "U8": 404, "V7": 200, "celld-wrong": 401} {
		if !allowed && want != 401 { // those are not even tokens
			want = 503
		}
		if a := w.send(t, request{user: user, method: "GET", path: invoice, header: stale}); a.status != want {
			t.Errorf("stale by %q: %d %s", user, a.status, a.body)
		}
	}
	w.call(t, "", "GET", "/readyz", nil).want(t, 503)
	w.call(t, "", "GET", "/healthz", nil).want(t, 200)
}

// TestRemovalAnswered: once a removal has been answered, no gateway admits.
func TestRemovalAnswered(t *testing.T) {
	c := newFakeCell(t, "C2", "n1")
	all := newWorlds(t, 3, func(cfg *Config) { cfg.Local = c.handlers() })
	all[0].register(t, c, c.addresses())
	all[0].people(t)
	for i, w := range all {
		for _, g := range all {
			g.eventually(t, "the member is known", func() error {
				if a := g.call(t, "U9", "GET", invoice, nil); a.status != 200 {
					return fmt.Errorf("%d %s", a.status, a.body)
				}
				return nil
			})
		}
		w.call(t, "U7", "DELETE", "/tenants/T7/members/U9", nil).want(t, 204)
		for _, g := range all {
			if a := g.call(t, "U9", "GET", invoice, nil); a.status != 404 && a.status != 503 {
				t.Fatalf("%s admits whom %s removed: %d", g.name, w.name, a.status)
			}
		}
		all[(i+1)%3].join(t, "T7", "U7", "U9", "member")
	}
}
