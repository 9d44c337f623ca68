package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"celld/cmd/celld/settings"
	"celld/gateway"
	"celld/gateway/identity"
	"celld/store/tenant"
)

// forgeries are sets of headers by which somebody may try to be somebody else:
// U8, the owner of T8.
func forgeries(t *testing.T, w *world) map[string]http.Header {
	t.Helper()
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	context := w.contextOf(t, "T8", "U8", tenant.Owner)
	ours := w.signer(t, "G1")
	theirs, err := identity.NewSigner("G1", stranger, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(s *identity.Signer) string {
		token, err := s.Sign(context)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	headers := map[string]http.Header{
		"garbage":       {"Celld-Context": {"garbage"}},
		"another key":   {"Celld-Context": {sign(theirs)}},
		"a good one":    {"Celld-Context": {sign(ours)}}, // stolen from the hop, with all its rights
		"two contexts":  {"Celld-Context": {sign(ours), sign(theirs)}},
		"tenant":        {"X-Tenant-Id": {"T8"}, "X-Tenant": {"T8"}, "Tenant": {"T8"}, "X-Org-Id": {"T8"}, "Celld-Tenant": {"T8"}, "Celld-Uid": {string(context.UID)}},
		"user":          {"X-User-Id": {"U8"}, "X-User": {"U8"}, "X-Auth-User": {"U8"}, "Remote-User": {"U8"}, "X-Remote-User": {"U8"}, "X-Auth-Request-Email": {"u8@eight.example"}, "Celld-Actor": {"U8"}, "Celld-User": {"U8"}},
		"role":          {"X-Role": {"owner"}, "X-User-Role": {"owner"}, "Celld-Role": {"owner"}, "Celld-Revision": {"999999"}},
		"operator":      {"X-Admin": {"true"}, "X-Operator": {"true"}, "Celld-Operator": {"true"}, "Celld-Internal": {"true"}, "Celld-Gateway": {"G1"}, "Celld-Act": {"provision"}},
		"forwarded":     {"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-User": {"U8"}, "X-Forwarded-Host": {"127.0.0.1"}, "X-Forwarded-Proto": {"https"}, "Forwarded": {"for=127.0.0.1;host=localhost"}, "X-Real-Ip": {"127.0.0.1"}},
		"another path":  {"X-Original-Url": {"/tenants/T8/invoices/17"}, "X-Rewrite-Url": {"/tenants/T8/invoices/17"}, "X-Forwarded-Prefix": {"/tenants/T8"}, "X-Forwarded-Uri": {"/tenants/T8/invoices/17"}},
		"method":        {"X-Http-Method-Override": {http.MethodDelete}, "X-Http-Method": {http.MethodDelete}, "X-Method-Override": {http.MethodDelete}},
		"hop's own":     {"Celld-Leader": {"n1"}, "Celld-Epoch": {"999"}, "Celld-Index": {"1.999999"}, "Celld-Kind": {"not-found"}, "Celld-Cell": {"C5"}, "Celld-Node": {"C5/n1"}, "Celld-Placement": {"C5"}},
		"certificate":   {"X-Forwarded-Client-Cert": {"URI=celld://gateway/G1"}, "X-Ssl-Client-Verify": {"SUCCESS"}, "X-Client-Cert": {"celld://gateway/G1"}},
		"cookies":       {"Cookie": {"token=" + w.fixture(t, "U8").token + "; session=" + w.fixture(t, "U8").token}, "Proxy-Authorization": {"Bearer " + w.fixture(t, "U8").token}, "X-Api-Key": {w.fixture(t, "U8").token}},
		"trace context": {"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Baggage": {"userId=U8,tenant=T8,role=owner"}},
	}
	return headers
}

// forged shows that no header but Authorization says who is asking.
func forged(t *testing.T, w *world) {
	m := newMatrix(t, w)
	expected := expectations()
	all := forgeries(t, w)
	for _, route := range gateway.Routes() {
		e := expected[route.Name]
		t.Run(route.Name, func(t *testing.T) {
			for _, name := range []string{"nobody", "X0", "V7", "F7"} {
				for _, plain := range m.harmless(t, route, e, name) {
					want := comparable(m.callers[name].do(t, plain))
					for what, headers := range all {
						r := plain
						r.header = headers
						a := m.callers[name].do(t, r)
						if got := comparable(a); got != want {
							t.Errorf("%s: %s %s with forged headers (%s):\n%s\nwithout:\n%s", name, r.method, r.path, what, got, want)
						}
						m.leaks(t, name+" with "+what, name, a)
					}
				}
			}
		})
	}

	t.Run("a success stays the caller's", func(t *testing.T) {
		u7, u8 := m.callers["U7"], m.callers["U8"]
		count := func() int { return len(walk(t, u8, path("tenants", "T8", "invoices"), "", 500, nil)) }
		before := count()
		for what, headers := range all {
			a := u7.do(t, request{method: http.MethodPost, path: path("tenants", "T7", "invoices"), header: headers, body: object{"customerId": 4, "amountMinor": 3, "currency": "USD"}}).want(t, http.StatusCreated)
			if in := a.text(t, "tenantId"); in != "T7" {
				t.Errorf("%s: the invoice was made in %s", what, in)
			}
		}
		if after := count(); after != before {
			t.Errorf("T8 got %d invoices", after-before)
		}
	})

	t.Run("two Authorization headers", func(t *testing.T) {
		good, other := "Bearer "+m.callers["V7"].token, "Bearer "+m.callers["U8"].token
		for _, values := range [][]string{{good, other}, {other, good}, {good, good}, {good, ""}, {"", good}} {
			m.w.nobody().do(t, request{method: http.MethodGet, path: path("tenants", "T7", "invoices", 17), header: http.Header{"Authorization": values}}).want(t, http.StatusUnauthorized)
		}
	})
}

// harmless are requests of a caller through a route that may be sent again and
// again: what changes something is aimed at where the caller has no right.
func (m *matrix) harmless(t *testing.T, route gateway.Route, e expectation, name string) []request {
	var all []request
	for _, c := range m.cases(t, route, e, name)[:1] {
		switch {
		case c.want == http.StatusCreated, route.Name == "openSession", c.method == http.MethodPut && c.want == http.StatusOK,
			c.method == http.MethodPatch && c.want == http.StatusOK, c.want == http.StatusNoContent:
			// A body that is refused shows who was asked as well as one that is taken.
			c.request.body = object{"forged": true}
			all = append(all, c.request)
		default:
			all = append(all, c.request)
		}
	}
	return all
}

// signer signs contexts with a gateway's own key.
func (w *world) signer(t testing.TB, name string) *identity.Signer {
	t.Helper()
	key, err := settings.ContextKey(filepath.Join(w.dir, "run", name, settings.ContextKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := identity.NewSigner(name, key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contextOf is a context with which a gateway would pass on a member's request.
func (w *world) contextOf(t testing.TB, in, user string, role tenant.Role) identity.Context {
	t.Helper()
	placement := w.operator.get(t, path("tenants", in)).want(t, http.StatusOK)
	cell := placement.text(t, "cell")
	return identity.Context{
		Cell: tenant.CellName(cell), CellKey: tenant.CellKey(w.awaitCell(t, cell).key), Act: identity.ByMember, Actor: tenant.UserID(user), Tenant: tenant.ID(in),
		UID: tenant.UID(placement.text(t, "uid")), Role: role, Revision: 1 << 20, Epoch: tenant.Epoch(placement.number(t, "epoch")),
	}
}
