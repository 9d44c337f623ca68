package api_test

import (
	"fmt"
	"strings"
	"testing"

	"celld/node/api"
	"celld/node/nodetest"
)

// TestRememberedRecords reads each record twice, so that the second answer comes
// from the cache, as every role and in both tenants, on the leader and by index on
// every node, before and after a change.
func TestRememberedRecords(t *testing.T) {
	w := newWorld(t)
	body := usd + `,"memo":"of %s","internal":{"note":"secret of %s"}}`
	made := w.want(w.As(w.finance, "POST", "/tenants/T7/invoices", fmt.Sprintf(body, "T7", "T7")), 201, "")
	index := made.Header.Get(api.HeaderIndex)
	w.want(w.As(w.other, "POST", "/tenants/T8/invoices", fmt.Sprintf(body, "T8", "T8")), 201, "")
	check := func(as nodetest.Caller, path, tenant, version string, internal bool) {
		t.Helper()
		for range 2 {
			a := w.want(w.As(as, "GET", path, ""), 200, "")
			text := string(a.Body)
			if strings.Contains(text, "secret") != internal || internal && !strings.Contains(text, "secret of "+tenant) ||
				!strings.Contains(text, `"tenantId":"`+tenant+`"`) || a.Header.Get("Etag") != version || a.Header.Get("Content-Length") != fmt.Sprint(len(text)) {
				t.Errorf("%s %s: %s %s", as.User, path, a.Header.Get("Etag"), text)
			}
		}
	}
	one := func(path string, version string) {
		t.Helper()
		check(w.finance, path, "T7", version, strings.Contains(path, "invoices"))
		check(w.viewer, path, "T7", version, false)
		check(w.owner, path, "T7", version, strings.Contains(path, "invoices"))
		check(w.member, path, "T7", version, false)
	}
	one("/tenants/T7/invoices/1", `"1"`)
	one("/tenants/T7/customers/1", `"1"`)
	check(w.other, "/tenants/T8/invoices/1", "T8", `"1"`, true)
	if got := w.As(w.finance, "GET", "/tenants/T7/invoices/1", ""); string(got.Body) != string(made.Body) {
		t.Errorf("read %s, made %s", got.Body, made.Body)
	}

	up := w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`,"status":"issued"}`, "If-Match", `"1"`), 200, "")
	w.want(w.As(w.member, "PUT", "/tenants/T7/customers/1", `{"name":"new"}`, "If-Match", `"1"`), 200, "")
	one("/tenants/T7/invoices/1", `"2"`)
	one("/tenants/T7/customers/1", `"2"`)
	check(w.other, "/tenants/T8/invoices/1", "T8", `"1"`, true)

	// Every node by index, also one whose cache had the version before.
	for _, min := range []string{index, up.Header.Get(api.HeaderIndex)} {
		for _, node := range []string{"n1", "n2", "n3"} {
			for range 2 {
				a, err := w.Ask(node, w.Sign(w.Context(w.viewer)), nodetest.Request{Method: "GET", Path: "/tenants/T7/invoices/1", Header: map[string]string{api.HeaderMinIndex: min}})
				if err != nil {
					t.Fatal(err)
				}
				if min == up.Header.Get(api.HeaderIndex) && a.Header.Get("Etag") != `"2"` {
					t.Errorf("%s answers %d %s for index %s", node, a.Status, a.Body, min)
				}
				if a.Status != 200 || strings.Contains(string(a.Body), "secret") {
					t.Errorf("%s: %d %s", node, a.Status, a.Body)
				}
			}
		}
	}
}
