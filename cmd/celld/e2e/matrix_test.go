package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"celld/cmd/celld/platform"
	"celld/gateway"
	"celld/store/tenant"
)

// matrix is the adversarial fixture with everybody who may ask about it.
type matrix struct {
	w         *world
	callers   map[string]caller
	roles     map[string]map[string]tenant.Role // by caller and tenant
	sentinels map[string]platform.Sentinel
	invite    map[string]string    // an open invite by tenant
	standing  map[string]string    // a member by tenant that nobody is to touch
	elsewhere map[string]oneTenant // by tenant: ids that exist in the other one only

	unknown string // how every 404 looks; "" until there was one
}

// oneTenant holds one id of each kind, by the name of the path's variable.
type oneTenant map[string]string

// malformed ids are as unknown as any other.
var (
	oddTenants = []string{"7T", "T_7", "t7", "T7%20", "%C3%9C7", "-", "T7.", "T" + strings.Repeat("7", 32), "T" + strings.Repeat("7", 3000), "T7'--"}
	oddObjects = []string{"abc", "0", "-1", "017", "+17", "17.0", "1e1", "0x11", "17%20", "9223372036854775807", "9223372036854775808", "%F0%9F%92%A5", "17%27--", strings.Repeat("1", 2000)}
)

// newMatrix gathers the fixture and adds what only a few cases need.
func newMatrix(t *testing.T, w *world) *matrix {
	m := &matrix{w: w, callers: map[string]caller{}, sentinels: w.platform.Sentinels(), invite: map[string]string{}, standing: map[string]string{}, elsewhere: map[string]oneTenant{},
		roles: map[string]map[string]tenant.Role{
			"U7": {"T7": tenant.Owner}, "U8": {"T8": tenant.Owner}, "U9": {"T7": tenant.Member, "T8": tenant.Member},
			"F7": {"T7": tenant.Finance}, "V7": {"T7": tenant.Viewer},
		}}
	for _, name := range []string{"U7", "U8", "U9", "F7", "V7", "X0"} {
		m.callers[name] = w.fixture(t, name)
	}
	m.callers["nobody"] = w.nobody()
	m.callers["a wrong token"] = w.as("a wrong token", "celld-"+strings.Repeat("x", 40))
	removed := w.newMember(t, m.callers["U7"], "T7", "admin")
	m.callers["U7"].delete(t, path("tenants", "T7", "members", removed.name)).want(t, http.StatusNoContent)
	m.callers["removed"] = removed
	for _, in := range []string{"T7", "T8"} {
		m.invite[in] = m.newInvite(t, in)
		m.standing[in] = w.newMember(t, m.owner(in), in, "viewer").name
	}
	// T8 gets so many objects that its last ones stay ahead of all of T7's.
	only8 := oneTenant{"user": "U8", "invite": m.invite["T8"]}
	for range 80 {
		only8["invoice"] = path(newInvoice(t, m.callers["U8"], "T8", 4))[1:]
		only8["customer"] = path(newCustomer(t, m.callers["U8"], "T8"))[1:]
	}
	m.elsewhere["T7"], m.elsewhere["T8"] = only8, oneTenant{"user": "V7", "invite": m.invite["T7"]}
	return m
}

func (m *matrix) owner(in string) caller { return m.callers["U"+in[1:]] }

func (m *matrix) newInvite(t *testing.T, in string) string {
	t.Helper()
	a := m.owner(in).post(t, path("tenants", in, "invites"), object{"email": m.w.serial("guest") + "@example.org", "role": "viewer"})
	return a.want(t, http.StatusCreated).text(t, "inviteId")
}

// adversarial sends every caller to every object through every route.
func adversarial(t *testing.T, w *world) {
	m := newMatrix(t, w)
	expected := expectations()
	before := m.fixtureContent(t)
	requests := 0
	for _, route := range gateway.Routes() {
		e, known := expected[route.Name]
		if !known {
			t.Errorf("the route %s (%s %s) has no entry in expectations_test.go", route.Name, route.Method, route.Pattern)
			continue
		}
		delete(expected, route.Name)
		if e.right != 0 != strings.Contains(route.Pattern, "{tenant}") {
			t.Errorf("the entry of %s names the right %v for the path %s", route.Name, e.right, route.Pattern)
		}
		t.Run(route.Name, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(m.callers)) {
				for _, c := range m.cases(t, route, e, name) {
					m.check(t, name, c)
					requests++
				}
			}
		})
	}
	for name := range expected {
		t.Errorf("expectations_test.go has an entry for %s, which is no route", name)
	}
	for in, name := range m.standing {
		if a := m.owner(in).get(t, path("tenants", in, "members")); !bytes.Contains(a.body, []byte(`"`+name+`"`)) {
			t.Errorf("%s lost the member %s: %s", in, name, a.body)
		}
	}
	if after := m.fixtureContent(t); before != after {
		t.Errorf("the fixture was changed:\n%s\n%s", before, after)
	}
	t.Logf("%d requests", requests)
}

// aimed is one request with the status that it must get.
type aimed struct {
	request
	want int
}

// cases are all requests of one caller through one route.
func (m *matrix) cases(t *testing.T, route gateway.Route, e expectation, name string) []aimed {
	if e.right == 0 {
		s := shot{}
		if e.aim != nil {
			s = e.aim(t, m, "", true)
		}
		want := e.ok
		if !e.open && (name == "nobody" || name == "a wrong token") {
			want = http.StatusUnauthorized
		}
		return []aimed{{request{method: route.Method, path: route.Pattern, body: s.body, ifMatch: s.ifMatch}, want}}
	}
	var all []aimed
	one := func(in, id string, s shot, want int) {
		p := strings.Replace(route.Pattern, "{tenant}", in, 1)
		if open := strings.IndexByte(p, '{'); open >= 0 {
			p = p[:open] + id
		}
		all = append(all, aimed{request{method: route.Method, path: p, body: s.body, ifMatch: s.ifMatch}, want})
	}
	_, variable, _ := strings.Cut(route.Pattern[len("/tenants/{tenant}"):], "{")
	variable = strings.TrimSuffix(variable, "}")
	for _, in := range []string{"T7", "T8"} {
		role := m.roles[name][in]
		missing := http.StatusNotFound
		switch {
		case name == "nobody" || name == "a wrong token":
			missing = http.StatusUnauthorized
		case role != 0 && !role.Can(e.right):
			missing = http.StatusForbidden
		}
		want, may := missing, role.Can(e.right)
		if may {
			want = e.ok
		}
		s := shot{}
		if e.aim != nil {
			s = e.aim(t, m, in, may)
		}
		one(in, s.object, s, want)
		if variable == "" {
			continue
		}
		if foreign := m.elsewhere[in][variable]; foreign != "" {
			one(in, foreign, s, missing)
		}
		unknown := map[string]string{"invoice": "123456789", "customer": "123456789", "user": "U404", "invite": "I404"}[variable]
		if unknown == "" {
			t.Fatalf("no unknown id of the kind {%s} is known here", variable)
		}
		one(in, unknown, s, missing)
		if e.oddFirst && role != 0 {
			missing = http.StatusNotFound
		}
		for _, odd := range oddObjects {
			if tenant.ValidID(odd) && variable == "user" {
				continue // nothing is wrong with that one
			}
			one(in, odd, s, missing)
		}
	}
	s := shot{}
	if e.aim != nil {
		s = e.aim(t, m, "T7", false)
	}
	nowhere := http.StatusNotFound
	if name == "nobody" || name == "a wrong token" {
		nowhere = http.StatusUnauthorized
	}
	for _, in := range append([]string{"T404"}, oddTenants...) {
		one(in, s.object, s, nowhere)
	}
	return all
}

// check sends one request, and looks at what came back with suspicion.
func (m *matrix) check(t *testing.T, name string, c aimed) {
	t.Helper()
	a := m.callers[name].do(t, c.request)
	what := fmt.Sprintf("%s: %s %.120s", name, c.method, c.path)
	if a.status != c.want {
		t.Errorf("%s answered %d, want %d: %s", what, a.status, c.want, a.body)
	}
	if a.status == http.StatusNotFound {
		looks := comparable(a)
		if m.unknown == "" {
			m.unknown = looks
		}
		if looks != m.unknown {
			t.Errorf("%s is another 404 than the first one:\n%s\n%s", what, looks, m.unknown)
		}
	}
	m.leaks(t, what, name, a)
}

// leaks looks for what the caller must not see.
func (m *matrix) leaks(t *testing.T, what, name string, a answer) {
	t.Helper()
	var all bytes.Buffer
	if err := a.header.Write(&all); err != nil {
		t.Fatal(err)
	}
	all.Write(a.body)
	for in, s := range m.sentinels {
		role := m.roles[name][in]
		if bytes.Contains(all.Bytes(), []byte(s.Memo)) && role == 0 {
			t.Errorf("%s: the answer holds the memo of %s: %s", what, in, all.Bytes())
		}
		if bytes.Contains(all.Bytes(), []byte(s.Note)) && !role.Can(tenant.ReadInternal) {
			t.Errorf("%s: the answer holds the internal note of %s: %s", what, in, all.Bytes())
		}
	}
}

// fixtureContent is what the fixture's objects look like to their owners.
func (m *matrix) fixtureContent(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, in := range []string{"T7", "T8"} {
		c := m.owner(in)
		a := c.get(t, path("tenants", in, "invoices", 17)).want(t, http.StatusOK)
		if s := m.sentinels[in]; s.Memo == "" || !bytes.Contains(a.body, []byte(s.Memo)) || !bytes.Contains(a.body, []byte(s.Note)) {
			t.Fatalf("invoice 17 of %s does not carry its sentinels: %s", in, a.body)
		}
		all.Write(a.body)
		all.Write(c.get(t, path("tenants", in, "customers", 4)).want(t, http.StatusOK).body)
	}
	m.owner("T7").get(t, path("tenants", "T7", "invoices", 17)).number(t, "version")
	if v := m.owner("T7").get(t, path("tenants", "T7", "invoices", 17)).number(t, "version"); v != 5 {
		t.Fatalf("T7's invoice 17 has version %d, want 5", v)
	}
	return all.String()
}

// comparable is an answer without what differs from request to request: its id
// and the date.
func comparable(a answer) string {
	h := a.header.Clone()
	id := h.Get("X-Request-Id")
	for _, name := range []string{"X-Request-Id", "Date"} {
		h.Del(name)
	}
	var all bytes.Buffer
	fmt.Fprintln(&all, a.status)
	if err := h.Write(&all); err != nil {
		return err.Error()
	}
	if id == "" {
		all.WriteString("no request id\n")
		return all.String()
	}
	all.Write(bytes.ReplaceAll(a.body, []byte(id), []byte("ID")))
	return all.String()
}
