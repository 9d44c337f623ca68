package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/gateway/identity"
	"celld/node/api"
	"celld/node/nodetest"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	usd = `{"customerId":1,"amountMinor":1250,"currency":"USD"`
)

// world is a cell with the tenants T7 and T8, each with a customer 1.
type world struct {
	*nodetest.Cluster
	t              *testing.T
	t7, t8         nodetest.Tenant
	owner, finance nodetest.Caller // of T7
	member, viewer nodetest.Caller
	other          nodetest.Caller // owner of T8
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: nodetest.New(t, "C2"), t: t}
	w.t7, w.t8 = w.Provision("T7"), w.Provision("T8")
	as := func(user tenant.UserID, role tenant.Role) nodetest.Caller {
		return nodetest.Caller{User: user, Role: role, Tenant: w.t7}
	}
	w.owner, w.finance, w.member, w.viewer = as("U7", tenant.Owner), as("F7", tenant.Finance), as("M7", tenant.Member), as("V7", tenant.Viewer)
	w.other = nodetest.Caller{User: "U8", Role: tenant.Owner, Tenant: w.t8}
	w.want(w.As(w.owner, "POST", "/tenants/T7/customers", `{"name":"A"}`), 201, "")
	w.want(w.As(w.other, "POST", "/tenants/T8/customers", `{"name":"B"}`), 201, "")
	return w
}

// want checks an answer's status and, of a problem, its slug.
func (w *world) want(a nodetest.Answer, status int, slug string) nodetest.Answer {
	w.t.Helper()
	if a.Status != status || slug != "" && a.Slug() != slug {
		w.t.Errorf("got %d %s, want %d %s", a.Status, a.Body, status, slug)
	}
	if status < 300 && a.Header.Get(api.HeaderIndex) == "" {
		w.t.Errorf("an answer without %s: %s", api.HeaderIndex, a.Body)
	}
	return a
}

func TestRecords(t *testing.T) {
	w := newWorld(t)
	made := w.want(w.As(w.finance, "POST", "/tenants/T7/invoices",
		usd+`,"reference":"R1","memo":"m","issuedAt":"2009-01-01T00:00:00Z","internal":{"costMinor":7,"note":"secret"}}`), 201, "")
	if made.Header.Get("Etag") != `"1"` || made.Header.Get("Location") != "/tenants/T7/invoices/1" || made.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", made.Header)
	}
	var doc map[string]any
	if err := made.Into(&doc); err != nil {
		t.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(doc))
	wantKeys := []string{"amountMinor", "createdAt", "currency", "customerId", "internal", "invoiceId", "issuedAt", "memo", "reference", "status", "tenantId", "updatedAt", "version"}
	if !slices.Equal(keys, wantKeys) || doc["status"] != "draft" || doc["issuedAt"] != "2009-01-01T00:00:00.000000Z" {
		t.Errorf("%s", made.Body)
	}
	read := w.want(w.As(w.finance, "GET", "/tenants/T7/invoices/1", ""), 200, "")
	if string(read.Body) != string(made.Body) || read.Header.Get("Etag") != `"1"` {
		t.Errorf("made %s, read %s", made.Body, read.Body)
	}
	for _, by := range []nodetest.Caller{w.member, w.viewer} {
		a := w.want(w.As(by, "GET", "/tenants/T7/invoices/1", ""), 200, "")
		l := w.want(w.As(by, "GET", "/tenants/T7/invoices", ""), 200, "")
		if strings.Contains(string(a.Body)+string(l.Body), "internal") {
			t.Errorf("%s sees %s", by.Role, a.Body)
		}
	}

	// Roles.
	w.want(w.As(w.viewer, "POST", "/tenants/T7/invoices", usd+`}`), 403, "forbidden")
	w.want(w.As(w.viewer, "PUT", "/tenants/T7/customers/1", `{"name":"x"}`, "If-Match", `"1"`), 403, "forbidden")
	w.want(w.As(w.member, "POST", "/tenants/T7/invoices", usd+`,"internal":{}}`), 403, "forbidden")
	w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`,"internal":{"note":"x"}}`, "If-Match", `"1"`), 403, "forbidden")

	// A member's update leaves the internal part as it is, and clears what it leaves out.
	up := w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`,"status":"issued"}`, "If-Match", `"1"`), 200, "")
	if strings.Contains(string(up.Body), "internal") || !strings.Contains(string(up.Body), `"memo":null`) || up.Header.Get("Etag") != `"2"` {
		t.Errorf("%s", up.Body)
	}
	if a := w.As(w.finance, "GET", "/tenants/T7/invoices/1", ""); !strings.Contains(string(a.Body), `"internal":{"costMinor":7,"note":"secret"}`) {
		t.Errorf("%s", a.Body)
	}
	a := w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`,"status":"draft","expectedVersion":2}`), 409, "invalid-transition")
	if !strings.Contains(string(a.Body), `"from":"issued"`) {
		t.Errorf("%s", a.Body)
	}

	// Versions.
	a = w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`,"expectedVersion":1}`), 412, "version-mismatch")
	if !strings.Contains(string(a.Body), `"currentVersion":2`) {
		t.Errorf("%s", a.Body)
	}
	w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`}`), 428, "expected-version-required")
	w.want(w.As(w.member, "PUT", "/tenants/T7/customers/1", `{"name":"x"}`), 428, "expected-version-required")
	w.want(w.As(w.member, "PUT", "/tenants/T7/customers/1", `{"name":"x","expectedVersion":1}`, "If-Match", `"2"`), 400, "invalid-if-match")
	w.want(w.As(w.member, "PUT", "/tenants/T7/customers/1", `{"name":"x","reference":"C1"}`, "If-Match", `"1"`), 200, "")
	w.want(w.As(w.member, "POST", "/tenants/T7/customers", `{"name":"y","reference":"C1"}`), 409, "reference-taken")
	w.want(w.As(w.member, "GET", "/tenants/T7/customers?reference=C1", ""), 200, "")

	// Unknown and foreign are the same.
	w.want(w.As(w.other, "POST", "/tenants/T8/invoices", usd+`}`), 201, "")
	w.want(w.As(w.other, "POST", "/tenants/T8/invoices", usd+`}`), 201, "")
	foreign := w.As(w.owner, "GET", "/tenants/T7/invoices/2", "") // T8 has one
	unknown := w.As(w.owner, "GET", "/tenants/T7/invoices/999999", "")
	if foreign.Status != 404 || !nodetest.Same(foreign, unknown) {
		t.Errorf("foreign %s, unknown %s", foreign.Body, unknown.Body)
	}
	for _, id := range []string{"0", "-1", "01", "1.0", "x", "99999999999999999999", "1%20", "%31", "1%2F2", "1/2"} {
		if a := w.As(w.owner, "GET", "/tenants/T7/invoices/"+id, ""); a.Status != 404 || !nodetest.Same(a, unknown) {
			t.Errorf("id %q: %d %s", id, a.Status, a.Body)
		}
	}
	w.want(w.As(w.owner, "PUT", "/tenants/T7/invoices/99", usd+`}`, "If-Match", `"1"`), 404, "not-found")
	w.EnsureSame()
}

func TestContextForgery(t *testing.T) {
	w := newWorld(t)
	leader := w.Leader()
	good := w.Context(w.owner)
	r := nodetest.Request{Method: "GET", Path: "/tenants/T7/customers/1"}
	ask := func(token string, r nodetest.Request) nodetest.Answer {
		t.Helper()
		a, err := w.Ask(leader, token, r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	changed := func(change func(*identity.Context)) string {
		c := good
		change(&c)
		return w.Sign(c)
	}
	w.want(ask(w.Sign(good), r), 200, "")
	token := w.Sign(good)
	flipped := []byte(token)
	flipped[len(flipped)/2] ^= 1
	_, foreignKey, _ := strings.Cut(token, ".")
	for name, probe := range map[string]struct {
		token string
		want  int
		slug  string
	}{
		"none":                  {"", 401, "context-missing"},
		"no token":              {"x", 401, "context-invalid"},
		"flipped":               {string(flipped), 401, "context-invalid"},
		"another header":        {"eyJhbGciOiJub25lIn0." + foreignKey, 401, "context-invalid"},
		"for another cell":      {changed(func(c *identity.Context) { c.Cell = "C5" }), 401, "context-invalid"},
		"for another key":       {changed(func(c *identity.Context) { c.CellKey = "OLD" }), 401, "context-invalid"},
		"for another tenant":    {w.Sign(w.Context(w.other)), 401, "context-invalid"},
		"id with a foreign uid": {changed(func(c *identity.Context) { c.UID = w.t8.UID }), 404, "not-found"},
		"for an old epoch":      {changed(func(c *identity.Context) { c.Epoch = 7 }), 503, "placement-changed"},
		"for a tenant not here": {changed(func(c *identity.Context) { c.UID = "aaaaaaaaaaaaaaaaaaaaaaaaaa" }), 503, "placement-changed"},
	} {
		a := ask(probe.token, r)
		if a.Status != probe.want || a.Slug() != probe.slug {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		write := ask(probe.token, nodetest.Request{Method: "POST", Path: "/tenants/T7/customers", Body: `{"name":"forged"}`, Header: map[string]string{api.HeaderKey: "k"}})
		if write.Status != probe.want || write.Slug() != probe.slug {
			t.Errorf("%s: a write answers %d %s", name, write.Status, write.Body)
		}
	}
	if a := ask(changed(func(c *identity.Context) { c.Epoch = 7 }), r); a.Header.Get(api.HeaderEpoch) != "1" {
		t.Errorf("the cell's epoch is told as %q", a.Header.Get(api.HeaderEpoch))
	}
	// Every other header about identity is ignored.
	forged := r
	forged.Header = map[string]string{
		"X-Tenant-Id": "T8", "X-User-Id": "U8", "X-Role": "owner", "X-Forwarded-User": "U8", "Authorization": "Bearer x",
		"Celld-Tenant": "T8", "Celld-Role": "owner", "Celld-Actor": "U8", "X-Original-Url": "/tenants/T8/customers/1", "X-Http-Method-Override": "PUT", "Host": "T8",
	}
	if plain, a := ask(token, r), ask(token, forged); !nodetest.Same(plain, a) {
		t.Errorf("forged headers changed %s to %s", plain.Body, a.Body)
	}
	// Expired, and signed by a clock ahead.
	old := w.Sign(good)
	w.Clock.Freeze(time.Minute)
	w.want(ask(old, r), 401, "context-invalid")
	ahead := w.Sign(good)
	w.Clock.Run()
	w.want(ask(ahead, r), 401, "context-invalid")
	for _, by := range []nodetest.Caller{w.owner, w.other} {
		if a := w.As(by, "GET", "/tenants/"+string(by.Tenant.ID)+"/customers", ""); strings.Contains(string(a.Body), "forged") {
			t.Errorf("%s", a.Body)
		}
	}
}

func TestStalePolicy(t *testing.T) {
	w := newWorld(t)
	leader := w.Leader()
	at := func(user tenant.UserID, revision tenant.Revision) nodetest.Answer {
		by := w.owner
		by.User, by.Revision = user, revision
		a, err := w.Ask(leader, w.Sign(w.Context(by)), nodetest.Request{Method: "GET", Path: "/tenants/T7/customers"})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	w.want(at("U7", 3), 200, "")
	w.want(at("U7", 2), 503, "stale-policy")
	w.want(at("U7", 3), 200, "")
	w.want(at("U9", 1), 200, "")
	w.want(at("U7", 4), 200, "")
	w.want(at("U7", 3), 503, "stale-policy")
}

func TestIdempotency(t *testing.T) {
	w := newWorld(t)
	const path, body = "/tenants/T7/invoices", usd + `,"internal":{"note":"n"}}`
	var first, replays atomic.Int32
	bodies := make([]string, 50)
	var wg sync.WaitGroup
	for i := range bodies {
		wg.Go(func() {
			a := w.want(w.As(w.finance, "POST", path, body, api.HeaderKey, "k"), 201, "")
			bodies[i] = string(a.Body)
			if a.Header.Get(api.HeaderReplayed) == "true" {
				replays.Add(1)
			} else {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	// None is the first where its outcome was unknown and it was asked again.
	if first.Load() > 1 || first.Load()+replays.Load() != 50 || len(slices.Compact(bodies)) != 1 {
		t.Errorf("%d first answers, %d replays, %q", first.Load(), replays.Load(), slices.Compact(bodies))
	}
	// The first answer stays what it was, whatever became of the invoice.
	w.want(w.As(w.finance, "PUT", path+"/1", usd+`,"memo":"later","expectedVersion":1}`), 200, "")
	again := w.want(w.As(w.finance, "POST", path, body, api.HeaderKey, "k"), 201, "")
	if string(again.Body) != bodies[0] || again.Header.Get("Etag") != `"1"` || again.Header.Get("Location") != path+"/1" {
		t.Errorf("%s, first %s", again.Body, bodies[0])
	}
	// It is shown for the role that the caller has now.
	demoted := w.finance
	demoted.Role, demoted.Revision = tenant.Member, 2
	w.want(w.As(demoted, "POST", path, body, api.HeaderKey, "k"), 403, "forbidden")
	w.want(w.As(w.member, "POST", path, usd+`}`, api.HeaderKey, "m"), 201, "")

	w.want(w.As(w.member, "POST", path, usd+`,"memo":"x"}`, api.HeaderKey, "m"), 422, "idempotency-key-reused")
	for name, a := range map[string]nodetest.Answer{
		"actor":     w.As(w.owner, "POST", path, usd+`,"memo":"x"}`, api.HeaderKey, "m"),
		"operation": w.As(w.member, "POST", "/tenants/T7/customers", `{"name":"x"}`, api.HeaderKey, "m"),
		"tenant":    w.As(nodetest.Caller{User: "M7", Role: tenant.Member, Tenant: w.t8}, "POST", "/tenants/T8/invoices", usd+`}`, api.HeaderKey, "m"),
	} {
		if a.Status != 201 || a.Header.Get(api.HeaderReplayed) != "" {
			t.Errorf("another %s is not independent: %d %s", name, a.Status, a.Body)
		}
	}
	// A replayed update, and the same key for another version or another id.
	put := func(id, body string) nodetest.Answer {
		return w.As(w.member, "PUT", path+"/"+id, body, api.HeaderKey, "p")
	}
	one := w.want(put("2", usd+`,"expectedVersion":1}`), 200, "")
	two := w.want(put("2", usd+`,"expectedVersion":1}`), 200, "")
	if string(one.Body) != string(two.Body) || two.Header.Get(api.HeaderReplayed) != "true" {
		t.Errorf("%s and %s", one.Body, two.Body)
	}
	w.want(put("2", usd+`,"expectedVersion":2}`), 422, "idempotency-key-reused")
	w.want(put("3", usd+`,"expectedVersion":1}`), 422, "idempotency-key-reused")
	// If-Match says the same as expectedVersion.
	w.want(w.As(w.member, "PUT", path+"/2", usd+`}`, api.HeaderKey, "p", "If-Match", `"1"`), 200, "")

	for _, key := range []string{"", strings.Repeat("k", 256), "ké", "a\tb"} {
		a, err := w.Ask(w.Leader(), w.Sign(w.Context(w.member)), nodetest.Request{Method: "POST", Path: path, Body: usd + `}`, Header: map[string]string{api.HeaderKey: key}})
		if err != nil || a.Status != 400 {
			t.Errorf("key %q: %d, %v", key, a.Status, err)
		}
	}
	w.want(w.As(w.member, "POST", path, usd+`}`, api.HeaderKey, strings.Repeat("~", 255)), 201, "")
	w.EnsureSame()
}

func TestOneUpdateOfManyWins(t *testing.T) {
	w := newWorld(t)
	w.want(w.As(w.member, "POST", "/tenants/T7/invoices", usd+`}`), 201, "")
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			a := w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+fmt.Sprintf(`,"memo":"%d"}`, i), "If-Match", `"1"`)
			switch {
			case a.Status == 200:
				won.Add(1)
			case a.Status == 412 && strings.Contains(string(a.Body), `"currentVersion":2`):
				lost.Add(1)
			default:
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 19 {
		t.Errorf("%d won, %d lost", won.Load(), lost.Load())
	}
}

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	const path = "/tenants/T7/invoices"
	big := usd + `,"memo":"` + strings.Repeat("x", 300<<10) + `"}`
	for _, c := range []struct {
		method, path, body string
		header             []string
		want               int
		slug               string
	}{
		{"POST", path, `{`, nil, 400, "malformed-json"},
		{"POST", path, usd + `,"nope":1}`, nil, 400, "unknown-field"},
		{"POST", path, `{"customerId":"x","amountMinor":1,"currency":"USD"}`, nil, 400, "invalid-field"},
		{"POST", path, `{"customerId":1,"amountMinor":1e400,"currency":"USD"}`, nil, 400, "invalid-field"},
		{"POST", path, `{"customerId":1,"amountMinor":9223372036854775808,"currency":"USD"}`, nil, 422, "invalid-amount"},
		{"POST", path, `{"customerId":1,"amountMinor":-1,"currency":"USD"}`, nil, 422, "invalid-amount"},
		{"POST", path, `{"customerId":1,"amountMinor":1,"currency":"ZZZ"}`, nil, 422, "unknown-currency"},
		{"POST", path, `{"customerId":77,"amountMinor":1,"currency":"USD"}`, nil, 422, "unknown-customer"},
		{"POST", path, usd + ",\"memo\":\"\xff\"}", nil, 400, "malformed-json"},
		{"POST", path, usd + ",\"memo\":\"a\x00b\"}", nil, 400, "malformed-json"},
		{"POST", path, usd + `,"memo":"a\u0000b"}`, nil, 400, "invalid-field"},
		{"POST", path, big, nil, 413, "body-too-large"},
		{"POST", path, usd + `}`, []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type"},
		{"POST", path, "", nil, 400, "malformed-json"},
		{"PUT", path + "/1", usd + `}`, []string{"If-Match", "*"}, 400, "invalid-if-match"},
		{"DELETE", path, "", nil, 405, "method-not-allowed"},
		{"PATCH", path + "/1", usd + `}`, nil, 405, "method-not-allowed"},
		{"HEAD", path, "", nil, 405, ""},
		{"GET", "/tenants/T7", "", nil, 404, "not-found"},
		{"GET", "/tenants/T7/", "", nil, 404, "not-found"},
		{"GET", path + "/", "", nil, 404, "not-found"},
		{"GET", "/tenants/T7/../T8/invoices", "", nil, 404, "not-found"},
		{"GET", "/tenants//invoices", "", nil, 404, "not-found"},
		{"GET", "/tenants/T7%2F..%2FT8/invoices", "", nil, 401, "context-invalid"},
		{"GET", "/tenants/t7/invoices", "", nil, 401, "context-invalid"},
		{"GET", "/", "", nil, 404, "not-found"},
		{"GET", path, "", []string{api.HeaderMinIndex, "x"}, 400, "invalid-header"},
		{"GET", path, "", []string{api.HeaderConsistency, "eventual"}, 400, "invalid-header"},
	} {
		a := w.want(w.As(w.owner, c.method, c.path, c.body, c.header...), c.want, c.slug)
		if a.Header.Get("X-Request-Id") == "" || c.method != "HEAD" && !json.Valid(a.Body) {
			t.Errorf("%s %s: %v %s", c.method, c.path, a.Header, a.Body)
		}
	}
	for path, want := range map[string]string{path: "GET, POST", path + "/1": "GET, PUT", "/internal/status": "GET"} {
		if a := w.As(w.owner, "DELETE", path, ""); a.Status != 405 || a.Header.Get("Allow") != want {
			t.Errorf("%s: %d, Allow %q", path, a.Status, a.Header.Get("Allow"))
		}
	}
	if a := w.As(w.owner, "GET", path, ""); string(a.Body) != `{"items":[]}` {
		t.Errorf("something got through: %s", a.Body)
	}
}

func TestFollowers(t *testing.T) {
	w := newWorld(t)
	made := w.want(w.As(w.member, "POST", "/tenants/T7/invoices", usd+`}`), 201, "")
	index := made.Header.Get(api.HeaderIndex)
	leader, follower := w.Leader(), w.Follower()
	ask := func(header ...string) nodetest.Answer {
		t.Helper()
		r := nodetest.Request{Method: "GET", Path: "/tenants/T7/invoices/1", Header: make(map[string]string)}
		for i := 0; i < len(header); i += 2 {
			r.Header[header[i]] = header[i+1]
		}
		a, err := w.Ask(follower, w.Sign(w.Context(w.viewer)), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := w.want(ask(), 503, "not-leader"); a.Header.Get(api.HeaderLeader) != leader || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a.Header)
	}
	for range 20 {
		a := w.want(ask(api.HeaderMinIndex, index), 200, "")
		if string(a.Body) != string(made.Body) || a.Header.Get(api.HeaderIndex) != index {
			t.Errorf("%s at %s", a.Body, a.Header.Get(api.HeaderIndex))
		}
		made = w.want(w.As(w.member, "PUT", "/tenants/T7/invoices/1", usd+`}`, "If-Match", made.Header.Get("Etag")), 200, "")
		index = made.Header.Get(api.HeaderIndex)
	}
	w.want(ask(api.HeaderMinIndex, index), 200, "")
	w.want(ask(api.HeaderConsistency, "stale"), 200, "")
	w.want(ask(api.HeaderConsistency, "stale", api.HeaderMinIndex, index), 200, "")
	w.want(ask(api.HeaderMinIndex, "1.4611686018427387904"), 503, "behind")
	w.want(ask(api.HeaderMinIndex, "2.1"), 503, "placement-changed")
	a, err := w.Ask(follower, w.Sign(w.Context(w.member)), nodetest.Request{Method: "POST", Path: "/tenants/T7/invoices", Body: usd + `}`, Header: map[string]string{api.HeaderKey: "k"}})
	if err != nil || a.Status != 503 || a.Header.Get(api.HeaderLeader) != leader {
		t.Errorf("a follower took a write: %d %s %v", a.Status, a.Body, err)
	}

	// Without a quorum there are stale reads and nothing else.
	for _, name := range w.Running() {
		if name != follower {
			w.Kill(name)
		}
	}
	w.want(ask(api.HeaderConsistency, "stale"), 200, "")
	if a := ask(); a.Status != 503 {
		t.Errorf("a read without a quorum: %d %s", a.Status, a.Body)
	}
}

func TestRoutesAreComplete(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range api.Routes() {
		if r.Name == "" || seen[r.Name] || r.Action == 0 || r.Action.String() == "" || !strings.HasPrefix(r.Path, "/tenants/{tenant}/") {
			t.Errorf("%+v", r)
		}
		seen[r.Name] = true
		if mutation := r.Method != http.MethodGet; mutation != (r.Action == tenant.WriteRecords) {
			t.Errorf("%s %s asks for %s", r.Method, r.Path, r.Action)
		}
	}
}
