package gateway

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"celld/store/tenant"
)

// aim puts ids into a route's pattern.
func aim(pattern, tenantID string) string {
	return strings.NewReplacer("{tenant}", tenantID, "{invoice}", "17", "{customer}", "4", "{user}", "U9", "{invite}", "i-none").Replace(pattern)
}

// bodyOf is a body that the route takes, "" where it takes none.
func bodyOf(name string) string {
	return map[string]string{
		"createInvoice": `{"customerId":4,"amountMinor":1,"currency":"USD"}`, "updateInvoice": `{"customerId":4,"amountMinor":1,"currency":"USD","expectedVersion":5}`,
		"createCustomer": `{"name":"Ann"}`, "updateCustomer": `{"name":"Ann","expectedVersion":5}`,
		"setRole": `{"role":"viewer"}`, "createInvite": `{"email":"new@example.org","role":"viewer"}`, "createTenant": `{"name":"Nine"}`,
		"acceptInvite": `{"token":"none"}`, "openSession": `{"email":"u7@example.org","password":"wrong password"}`,
	}[name]
}

func (w *world) through(t *testing.T, r Route, user, tenantID string, header http.Header) answer {
	t.Helper()
	var body any
	if b := bodyOf(r.Name); b != "" {
		body = b
	}
	return w.send(t, request{user: user, method: r.Method, path: aim(r.Pattern, tenantID), body: body, header: header})
}

// TestDenyByDefault: nothing but the named public routes is answered to nobody.
func TestDenyByDefault(t *testing.T) {
	w, c := fakeWorld(t, nil)
	c.all()
	for _, r := range Routes() {
		for name, token := range map[string]string{"nobody": "", "a wrong token": "celld-wrong", "an operator": operatorToken} {
			a := w.through(t, r, token, "T7", nil)
			if r.Target == Public {
				if r.Name != "openSession" && a.status != r.Success {
					t.Errorf("%s to %s: %d", r.Name, name, a.status)
				}
				continue
			}
			if a.status != 401 || a.problem(t) != "unauthenticated" || a.header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%s to %s: %d %s", r.Name, name, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/", "/nothing", "/internal/status", "/internal/tenants/x", "/metrics", "/users", "/cells", "/debug/pprof", "/tenants/T7/nothing"} {
		if a := w.call(t, "", "GET", path, nil); a.status != 401 {
			t.Errorf("%s to nobody: %d", path, a.status)
		}
		if a := w.call(t, "U7", "GET", path, nil); a.status != 404 {
			t.Errorf("%s to a user: %d", path, a.status)
		}
	}
	for _, header := range []http.Header{{"Authorization": {"Bearer " + w.tokens["U7"], "Bearer " + w.tokens["U7"]}}, {"Authorization": {w.tokens["U7"]}},
		{"Authorization": {"Basic " + w.tokens["U7"]}}, {"Authorization": {"Bearer"}}, {"Authorization": {"Bearer "}}, {"Authorization": {"Bearer  " + w.tokens["U7"]}},
		{"Authorization": {"Bearer " + strings.Repeat("a", 600)}}, {"Cookie": {"token=" + w.tokens["U7"]}}, {"X-Api-Key": {w.tokens["U7"]}}} {
		if a := w.send(t, request{method: "GET", path: "/me", header: header}); a.status != 401 {
			t.Errorf("%v: %d", header, a.status)
		}
	}
	if got := c.all(); len(got) > 0 {
		t.Errorf("came to the cell: %+v", got)
	}
}

// TestForeignIsUnknown: foreign, unknown and malformed tenants get the same bytes.
func TestForeignIsUnknown(t *testing.T) {
	w, c := fakeWorld(t, nil)
	c.all()
	want := ""
	for _, r := range Routes() {
		if r.Action == 0 {
			continue
		}
		for _, id := range []string{"T8", "T9", "t7", "7T", "-", "T7.", "T%207", "%C3%9C", "T" + strings.Repeat("7", 32), strings.Repeat("T", 3000)} {
			a := w.through(t, r, "U7", id, nil)
			got := without(a.header) + strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), "ID")
			if a.status != 404 {
				t.Errorf("%s of %.40s: %d %s", r.Name, id, a.status, a.body)
			}
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s of %.40s:\n%s\nbefore:\n%s", r.Name, id, got, want)
			}
		}
		if a := w.through(t, r, "X0", "T7", nil); a.status != 404 {
			t.Errorf("%s by a stranger: %d", r.Name, a.status)
		}
	}
	if got := c.all(); len(got) > 0 {
		t.Errorf("came to the cell: %+v", got)
	}
	// What the cell says about an unknown object is the same once more.
	c.nodes["n1"].next(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Celld-Index", "1.7")
		w.WriteHeader(404)
		_, _ = w.Write([]byte(`{"type":"not-found","title":"Nope","status":404,"detail":"no invoice 99"}`))
	})
	a := w.call(t, "U7", "GET", "/tenants/T7/invoices/99", nil)
	if got := without(a.header) + strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), "ID"); a.status != 404 || got != want {
		t.Errorf("unknown object:\n%s\nunknown tenant:\n%s", got, want)
	}
}

// TestRoles walks routes and roles.
func TestRoles(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	for _, r := range Routes() {
		if r.Target != Cell {
			continue
		}
		for user, role := range map[string]tenant.Role{"U7": tenant.Owner, "F7": tenant.Finance, "U9": tenant.Member, "V7": tenant.Viewer} {
			want := 403
			if role.Can(r.Action) {
				want = r.Success
			}
			if a := w.through(t, r, user, "T7", nil); a.status != want {
				t.Errorf("%s by %s: %d, want %d", r.Name, role, a.status, want)
			}
		}
	}
}

// forged are headers by which somebody may try to be somebody else.
func forged() http.Header {
	return http.Header{
		"Celld-Context": {"eyJhbGciOiJub25lIn0.e30."}, "X-Tenant": {"T8"}, "X-Tenant-Id": {"T8"}, "X-User": {"U8"}, "X-User-Id": {"U8"}, "X-Role": {"owner"},
		"X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-User": {"U8"}, "X-Forwarded-Host": {"evil"}, "Forwarded": {"for=10.0.0.1"}, "X-Real-Ip": {"10.0.0.1"},
		"X-Original-Url": {"/tenants/T8/invoices/17"}, "X-Rewrite-Url": {"/tenants/T8"}, "X-Http-Method-Override": {"DELETE"}, "Celld-Leader": {"n3"},
		"Celld-Epoch": {"99"}, "Celld-Kind": {"moved"}, "Celld-Tenant": {"T8"}, "Cookie": {"a=b"}, "Proxy-Authorization": {"Bearer x"}, "Celld-Index": {"9.9"},
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
}

// TestForgedHeaders: on every route, headers about identity change nothing and go
// nowhere.
func TestForgedHeaders(t *testing.T) {
	w, c := fakeWorld(t, nil)
	passed := []string{"Accept", "Content-Type", "Celld-Context", "X-Request-Id", "Idempotency-Key", "If-Match", "Celld-Min-Index", "Celld-Consistency"}
	for _, r := range Routes() {
		for _, user := range []string{"V7", "X0", ""} {
			c.all()
			plain := w.through(t, r, user, "T7", nil)
			bare := c.all()
			got := w.through(t, r, user, "T7", forged())
			with := c.all()
			if got.status != plain.status || r.Name != "createTenant" && without(got.header, "Content-Length") != without(plain.header, "Content-Length") {
				t.Errorf("%s by %q: %d %v, without forged headers %d %v", r.Name, user, got.status, got.header, plain.status, plain.header)
			}
			if len(bare) != len(with) {
				t.Fatalf("%s by %q: %d requests to the cell, %d without", r.Name, user, len(with), len(bare))
			}
			for i := range with {
				if with[i].context != bare[i].context || with[i].path != bare[i].path || with[i].method != bare[i].method {
					t.Errorf("%s by %q: the cell was told %+v", r.Name, user, with[i])
				}
				for _, name := range slices.Sorted(maps.Keys(with[i].header)) {
					if !slices.Contains(passed, name) {
						t.Errorf("%s: the header %s came to the cell", r.Name, name)
					}
				}
			}
		}
	}
}

func TestPathHygiene(t *testing.T) {
	w, c := fakeWorld(t, nil)
	c.all()
	for _, path := range []string{
		"//", "//tenants", "/tenants//T7", "/tenants/T7/", "/tenants/", "/./tenants", "/tenants/.", "/tenants/..", "/tenants/T8/../T7", "/tenants/T7/invoices/..",
		"/tenants%2FT7", "/tenants%2fT7", "/tenants/T7%2Finvoices", "/tenants/T7%5Cinvoices", "/tenants/T7%5cinvoices", "/tenants/%2e%2e/T7", "/tenants/%2E", "/tenants/.%2e/T7",
		"/tenants/T7%00", "/tenants/T7%0a", "/tenants/T7%7f", "/healthz/", "//healthz", "/./healthz", "/%2e/healthz", "/healthz/../me",
	} {
		for _, user := range []string{"", "U7"} {
			a := w.send(t, request{user: user, method: "GET", path: path})
			if a.status != 400 || a.problem(t) != "invalid-path" || a.header.Get("Location") != "" {
				t.Errorf("%q to %q: %d %s", path, user, a.status, a.body)
			}
		}
	}
	// Encodings that say the same are the same.
	w.call(t, "U7", "GET", "/tenants/%547/invoices/1%37", nil).want(t, 200)
	if got := c.all(); len(got) != 1 || got[0].path != "/tenants/T7/invoices/17" {
		t.Errorf("came to the cell: %+v", got)
	}
}

func TestMethods(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	for path, allow := range map[string]string{
		"/tenants/T7/invoices": "GET, POST", "/tenants/T7/invoices/17": "GET, PUT", "/tenants": "GET, POST", "/me": "GET", "/tenants/T7/members/U9": "DELETE, PATCH",
		"/sessions/current": "DELETE", "/sessions": "POST", "/openapi.yaml": "GET", "/tenants/T9/invoices/17": "GET, PUT",
	} {
		for _, method := range []string{"TRACE", "OPTIONS", "PROPFIND", "HEAD"} {
			a := w.call(t, "U7", method, path, nil)
			if a.status != 405 || a.header.Get("Allow") != allow {
				t.Errorf("%s %s: %d, Allow %q", method, path, a.status, a.header.Get("Allow"))
			}
			if method != "HEAD" && a.problem(t) != "method-not-allowed" {
				t.Errorf("%s %s: %s", method, path, a.body)
			}
		}
	}
}

func TestHeaderBounds(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	many := http.Header{}
	for i := range maxHeaders + 1 {
		many["X-"+strings.Repeat("A", i+1)] = []string{"a"}
	}
	for name, h := range map[string]http.Header{"long": {"X-Long": {strings.Repeat("a", maxHeaderBytes)}}, "many": many, "repeated": {"X-A": slices.Repeat([]string{"a"}, 100)}} {
		if a := w.send(t, request{user: "U7", method: "GET", path: "/me", header: h}); a.status != 431 || a.problem(t) != "headers-too-large" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// Beyond that net/http itself answers, before there is a request.
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.public+"/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("a", 2*hardHeaders))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 431 {
		t.Errorf("far too long: %d", resp.StatusCode)
	}
}

func TestRequestIDs(t *testing.T) {
	w, c := fakeWorld(t, nil)
	c.all()
	a := w.send(t, request{user: "U7", method: "GET", path: "/tenants/T7/invoices/17", header: http.Header{"X-Request-Id": {"my.request-1"}}}).want(t, 200)
	if got := c.all(); a.header.Get("X-Request-Id") != "my.request-1" || got[0].header.Get("X-Request-Id") != "my.request-1" {
		t.Errorf("answered %v, cell %+v", a.header, got)
	}
	if !strings.Contains(w.log.String(), `"request_id":"my.request-1"`) {
		t.Error("the log does not have it")
	}
	a = w.send(t, request{user: "U7", method: "GET", path: "/tenants/T8/invoices/17", header: http.Header{"X-Request-Id": {"b@d"}}}).want(t, 404)
	if id := a.header.Get("X-Request-Id"); id == "b@d" || id == "" || !strings.Contains(a.body, id) {
		t.Errorf("answered %v %s", a.header, a.body)
	}
}

// late is a body that is asked for, and comes when it is let go.
type late struct {
	io.Reader
	asked, comes chan struct{}
	once         sync.Once
}

func (l *late) Read(b []byte) (int, error) {
	l.once.Do(func() {
		close(l.asked)
		<-l.comes
	})
	return l.Reader.Read(b)
}

// raw sends bytes as they are and returns all that comes back until the connection
// is closed.
func (w *world) raw(t *testing.T, sent string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("%v after %q", err, got)
	}
	return string(got)
}

// TestRawRequests: what the HTTP server refuses by itself is what docs/api.md says,
// and nothing follows a chunked request.
func TestRawRequests(t *testing.T) {
	w := newWorld(t, nil)
	const host = "Host: x\r\n"
	for sent, want := range map[string]string{
		"GET /healthz\r\n\r\n":                                                    "400",
		"GET /healthz HTTP/1.1\r\n\r\n":                                           "400",
		"GET /healthz HTTP/1.1\r\n" + host + "a b: c\r\n\r\n":                     "400",
		"POST /sessions HTTP/1.1\r\n" + host + "Content-Length: x\r\n\r\n":        "400",
		"POST /sessions HTTP/1.1\r\n" + host + "Expect: 200-ok\r\n\r\n":           "417",
		"POST /sessions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n":  "501",
		"GET /healthz HTTP/3.0\r\n" + host + "\r\n":                               "505",
		"GET /healthz HTTP/1.1\r\n" + host + "a: " + strings.Repeat("a", 140<<10): "431",
	} {
		got := w.raw(t, sent)
		if !strings.HasPrefix(got, "HTTP/1.1 "+want+" ") || strings.Contains(got, "X-Request-Id") || strings.Contains(got, "problem+json") {
			t.Errorf("%.60q: %q, want %s", sent, got, want)
		}
	}
	for _, length := range []string{"", "Content-Length: 4\r\n"} {
		got := w.raw(t, "POST /sessions HTTP/1.1\r\n"+host+length+"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n"+host+"\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "invalid-field") || !strings.Contains(got, "Connection: close\r\n") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%q: %q", length, got)
		}
	}
}

// TestLateBodies: what was answered about the sender while the body was on its way
// holds, and meanwhile the request takes no place of the tenant's.
func TestLateBodies(t *testing.T) {
	w, c := fakeWorld(t, func(cfg *Config) { cfg.Limits.TenantRequests = 1 })
	var session struct{ Token string }
	w.operator(t, "POST", "/users", map[string]any{"userId": "P1", "email": "p1@example.org", "password": "the password of P1"}).want(t, 201)
	w.call(t, "", "POST", "/sessions", map[string]any{"email": "p1@example.org", "password": "the password of P1"}).want(t, 201).into(t, &session)
	for _, test := range []struct {
		what, token, route string
		change             func()
		want               int
	}{
		{"nothing", w.tokens["U9"], "createCustomer", func() { w.call(t, "V7", "GET", invoice, nil).want(t, 200) }, 201},
		{"a change of role", w.tokens["F7"], "createInvoice", func() {
			w.call(t, "U7", "PATCH", "/tenants/T7/members/F7", map[string]any{"role": "viewer"}).want(t, 200)
		}, 403},
		{"a removal", w.tokens["U9"], "createCustomer", func() { w.call(t, "U7", "DELETE", "/tenants/T7/members/U9", nil).want(t, 204) }, 404},
		{"the end of the session", session.Token, "createTenant", func() { w.call(t, session.Token, "DELETE", "/sessions/current", nil).want(t, 204) }, 401},
		{"a suspension", w.tokens["U7"], "updateInvoice", func() { w.operator(t, "POST", "/tenants/T7/suspend", nil).want(t, 200) }, 403},
	} {
		route := Routes()[slices.IndexFunc(Routes(), func(r Route) bool { return r.Name == test.route })]
		body := &late{Reader: strings.NewReader(bodyOf(route.Name)), asked: make(chan struct{}), comes: make(chan struct{})}
		status := make(chan int, 1)
		go func() { status <- w.sendLate(t, test.token, route.Method, aim(route.Pattern, "T7"), body) }()
		<-body.asked
		test.change()
		c.all()
		close(body.comes)
		if got := <-status; got != test.want {
			t.Errorf("%s while the body was on its way: %d, want %d", test.what, got, test.want)
		}
		if got := c.all(); test.want > 299 && len(got) > 0 {
			t.Errorf("%s while the body was on its way: came to the cell: %+v", test.what, got)
		}
	}
}

// sendLate sends a body when the gateway asks for it, and returns the status.
func (w *world) sendLate(t *testing.T, token, method, path string, body io.Reader) int {
	transport := &http.Transport{ExpectContinueTimeout: deadline}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, w.public+path, body)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Expect": {"100-continue"}}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}
