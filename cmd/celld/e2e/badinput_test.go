package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"celld/gateway"
)

// target is a route that takes a body, with a request that would succeed.
type target struct {
	path    string
	body    object
	ifMatch string
	texts   []string // members that are texts
	numbers []string // members that are whole numbers
}

// badInput shows that whatever is wrong with a request has its documented
// answer, and never 500.
func badInput(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	targets := badTargets(t, w, owner, tenant)
	for _, route := range gateway.Routes() {
		takesBody := route.Method == http.MethodPost || route.Method == http.MethodPut || route.Method == http.MethodPatch
		if _, known := targets[route.Name]; known != takesBody {
			t.Errorf("the route %s takes a body: %v; it has an entry here: %v", route.Name, takesBody, known)
		}
	}
	count := func() string {
		return fmt.Sprint(len(walk(t, owner, path("tenants", tenant, "invoices"), "", 500, nil)), len(walk(t, owner, path("tenants", tenant, "customers"), "", 500, nil)))
	}
	before := count()
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		t.Run(name, func(t *testing.T) {
			method := ""
			for _, route := range gateway.Routes() {
				if route.Name == name {
					method = route.Method
				}
			}
			badBodies(t, owner, method, targets[name])
			badHeaders(t, owner, method, targets[name])
		})
	}
	t.Run("values", func(t *testing.T) { badValues(t, owner, tenant) })
	t.Run("paths", func(t *testing.T) { badPaths(t, owner, tenant) })
	t.Run("queries", func(t *testing.T) { badQueries(t, owner, tenant) })
	t.Run("methods", func(t *testing.T) { badMethods(t, owner, tenant) })
	if after := count(); after != before {
		t.Errorf("bad requests changed the number of invoices and customers from %s to %s", before, after)
	}
}

func badTargets(t *testing.T, w *world, owner caller, tenant string) map[string]target {
	customer := newCustomer(t, owner, tenant)
	invoice := newInvoice(t, owner, tenant, customer)
	member := w.newMember(t, owner, tenant, "member")
	invoiceTexts, invoiceNumbers := []string{"currency", "memo", "reference", "status", "issuedAt"}, []string{"customerId", "amountMinor"}
	customerTexts := []string{"name", "reference", "email", "country"}
	in := path("tenants", tenant)
	return map[string]target{
		"createInvoice": {path: in + "/invoices", body: invoiceBody(customer), texts: invoiceTexts, numbers: invoiceNumbers},
		"updateInvoice": {path: in + path("invoices", invoice), body: invoiceBody(customer), ifMatch: etag(1), texts: invoiceTexts,
			numbers: append([]string{"expectedVersion"}, invoiceNumbers...)},
		"createCustomer": {path: in + "/customers", body: object{"name": "Bad"}, texts: customerTexts},
		"updateCustomer": {path: in + path("customers", customer), body: object{"name": "Bad"}, ifMatch: etag(1), texts: customerTexts, numbers: []string{"expectedVersion"}},
		"setRole":        {path: in + path("members", member.name), body: object{"role": "member"}, texts: []string{"role"}},
		"createInvite":   {path: in + "/invites", body: object{"email": "bad@example.org", "role": "viewer"}, texts: []string{"email", "role"}},
		"createTenant":   {path: "/tenants", body: object{"name": "Bad"}, texts: []string{"name", "region", "tier"}},
		"acceptInvite":   {path: "/invites/accept", body: object{"token": "bad"}, texts: []string{"token"}},
		"openSession":    {path: "/sessions", body: object{"email": "bad@example.org", "password": "bad password"}, texts: []string{"email", "password"}},
	}
}

// badBodies sends everything that is not the JSON object that is asked for.
func badBodies(t *testing.T, c caller, method string, g target) {
	t.Helper()
	good, err := json.Marshal(g.body)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(good[1:])
	first := slices.Sorted(maps.Keys(g.body))[0]
	firstValue, err := json.Marshal(g.body[first])
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{
		"nothing": "", "blank": "  ", "cut off": string(good[:len(good)-1]), "one brace": "{", "array": "[" + string(good) + "]", "null": "null",
		"text": `"x"`, "number": "1", "true": "true", "twice": string(good) + string(good), "trailing": string(good) + "x", "comment": "{/**/" + rest,
		"single quotes": strings.ReplaceAll(string(good), `"`, "'"), "BOM": "\ufeff" + string(good), "empty": "{}", "garbage": "\x00\x01\x02\xff", "UTF-16": "\xff\xfe{\x00}\x00",
		"unknown field": `{"unknown":1,` + rest, "field twice": `{"` + first + `":` + string(firstValue) + `,` + rest, "field in capitals": `{"` + strings.ToUpper(first) + `":` + string(firstValue) + `,` + rest,
		"prototype": `{"__proto__":{},` + rest, "tenant": `{"tenantId":"T8",` + rest, "empty name": `{"":1,` + rest, "NUL in name": `{"a\u0000":1,` + rest,
		"deep": `{"unknown":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "," + rest, "deep and open": strings.Repeat(`{"a":`, 5000),
	}
	with := func(what, member, raw string) {
		o := g.body.with(object{member: json.RawMessage("0")})
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		bodies[member+" "+what] = strings.Replace(string(b), `"`+member+`":0`, `"`+member+`":`+raw, 1)
	}
	for _, member := range g.texts {
		for what, raw := range map[string]string{
			"null": "null", "number": "1", "true": "true", "object": "{}", "array": `["x"]`, "invalid UTF-8": "\"a\xc3\x28\"", "overlong UTF-8": "\"\xc0\x80\"", "surrogate bytes": "\"\xed\xa0\x80\"",
			"NUL": `"a\u0000b"`, "raw NUL": "\"a\x00b\"", "escape": `"a\u001bb"`, "DEL": `"a\u007fb"`, "C1": `"a\u0085b"`, "half a pair": `"\ud800"`, "the other half": `"\udc00x"`, "bad escape": `"\x41"`, "open": `"abc`,
			"long": `"` + strings.Repeat("x", 100_000) + `"`, "empty": `""`,
		} {
			if what == "empty" && member == "memo" || what == "empty" && (member == "region" || member == "tier") {
				continue // an empty memo is a memo; an empty region means any
			}
			with(what, member, raw)
		}
	}
	for _, member := range g.numbers {
		for what, raw := range map[string]string{
			"null": "null", "text": `"1"`, "true": "true", "object": "{}", "array": "[1]", "fraction": "1.5", "whole fraction": "1.0", "exponent": "1e3", "huge exponent": "1e400", "leading zero": "01",
			"plus": "+1", "hex": "0x10", "NaN": "NaN", "infinite": "Infinity", "two": "1 2",
		} {
			with(what, member, raw)
		}
	}
	for what, body := range bodies {
		a := c.do(t, request{method: method, path: g.path, ifMatch: g.ifMatch, body: body})
		// An invite's token or credentials that are text and long are still just wrong ones.
		if a.status != http.StatusBadRequest && a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s %s answered %d: %.200s", what, method, g.path, a.status, a.body)
		}
		if a.status == http.StatusUnprocessableEntity && !strings.HasPrefix(what, "currency ") {
			t.Errorf("%s: what is malformed answered 422: %.200s", what, a.body)
		}
	}
}

// badHeaders sends a good body in a wrong way.
func badHeaders(t *testing.T, c caller, method string, g target) {
	t.Helper()
	good := request{method: method, path: g.path, ifMatch: g.ifMatch, body: g.body}
	expect := func(what string, r request, status int) {
		t.Helper()
		if a := c.do(t, r); a.status != status {
			t.Errorf("%s: %s %s answered %d, want %d: %.200s", what, method, g.path, a.status, status, a.body)
		}
	}
	with := func(name string, values ...string) request {
		r := good
		r.header = http.Header{name: values}
		return r
	}
	large := good
	large.body = g.body.with(object{"unknown": strings.Repeat("x", 300<<10)})
	expect("300 KiB", large, http.StatusRequestEntityTooLarge)
	large.stream = true
	expect("300 KiB in chunks", large, http.StatusRequestEntityTooLarge)

	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/json; charset=utf-16", "application/json, text/plain", "application/problem+json", "json", "*/*", ";", ""} {
		expect("Content-Type "+kind, with("Content-Type", kind), http.StatusUnsupportedMediaType)
	}
	expect("two Content-Types", with("Content-Type", "application/json", "text/plain"), http.StatusUnsupportedMediaType)
	bare := good
	bare.noType = true
	expect("no Content-Type", bare, http.StatusUnsupportedMediaType)
	expect("gzip", with("Content-Encoding", "gzip"), http.StatusUnsupportedMediaType)

	query := good
	for _, q := range []string{"?x=1", "?limit=1", "?%zz=1", "?=", "?a=1&a=2", "?;"} {
		query.path = g.path + q
		expect("query "+q, query, http.StatusBadRequest)
	}
	if g.path == "/sessions" {
		return // sessions know no key
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "a\tb", "schlüssel", "\xff"} {
		expect(fmt.Sprintf("Idempotency-Key %.20q", key), with("Idempotency-Key", key), http.StatusBadRequest)
	}
	expect("two Idempotency-Keys", with("Idempotency-Key", "a", "b"), http.StatusBadRequest)
	if g.ifMatch == "" {
		return
	}
	for _, match := range []string{"1", "*", `W/"1"`, `"1","2"`, `"1", "1"`, `""`, `"01"`, `"+1"`, `"-1"`, `"0"`, `"1.0"`, `"x"`, `"1`, `1"`, `"99999999999999999999"`, strings.Repeat("1", 4000)} {
		r := good
		r.ifMatch = match
		a := c.do(t, r)
		// A version that cannot be is another one than the current one.
		if a.status != http.StatusBadRequest && a.status != http.StatusPreconditionFailed {
			t.Errorf("If-Match %.30s: %d %.200s", match, a.status, a.body)
		}
	}
	r := good
	r.ifMatch, r.header = "", http.Header{"If-Match": {`"1"`, `"2"`}}
	expect("two If-Match", r, http.StatusBadRequest)
}

// badValues sends what is well formed and cannot be, or may not be.
func badValues(t *testing.T, c caller, tenant string) {
	const customer = 1
	invoices, customers := path("tenants", tenant, "invoices"), path("tenants", tenant, "customers")
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	const invalid, impossible = http.StatusBadRequest, http.StatusUnprocessableEntity
	for _, bad := range []struct {
		change object
		status int
	}{
		{object{"amountMinor": -1}, impossible},
		{object{"amountMinor": raw("-9223372036854775808")}, impossible},
		{object{"amountMinor": raw("9223372036854775808")}, impossible},
		{object{"amountMinor": raw("99999999999999999999999999999999")}, impossible},
		{object{"amountMinor": raw("-" + strings.Repeat("9", 1000))}, impossible},
		{object{"amountMinor": nil}, invalid},
		{object{"customerId": 0}, impossible},
		{object{"customerId": -1}, impossible},
		{object{"customerId": 999999}, impossible},
		{object{"customerId": raw("9223372036854775808")}, impossible},
		{object{"customerId": nil}, invalid},
		{object{"currency": "usd"}, impossible},
		{object{"currency": "XXY"}, impossible},
		{object{"currency": "US"}, impossible},
		{object{"currency": " USD"}, impossible},
		{object{"currency": "USD\n"}, impossible},
		{object{"currency": "ＵＳＤ"}, impossible},
		{object{"currency": nil}, invalid},
		{object{"status": "Draft"}, invalid},
		{object{"status": "deleted"}, invalid},
		{object{"memo": strings.Repeat("ü", 2001)}, invalid},
		{object{"reference": strings.Repeat("r", 101)}, invalid},
		{object{"issuedAt": "2026-01-31"}, invalid},
		{object{"issuedAt": "2026-02-30T00:00:00Z"}, invalid},
		{object{"issuedAt": "2026-01-31T24:00:00Z"}, invalid},
		{object{"issuedAt": "2026-01-31T09:30:00+01:00"}, invalid},
		{object{"issuedAt": "2026-01-31T09:30:00"}, invalid},
		{object{"issuedAt": "2026-01-31T09:30:00.1234567Z"}, invalid},
		{object{"issuedAt": "20260131T093000Z"}, invalid},
		{object{"issuedAt": "99999-01-31T09:30:00Z"}, invalid},
		{object{"internal": object{"costMinor": -1}}, impossible},
		{object{"internal": object{"costMinor": raw("9223372036854775808")}}, impossible},
		{object{"internal": object{"costMinor": "1"}}, invalid},
		{object{"internal": object{"unknown": 1}}, invalid},
		{object{"internal": []int{}}, invalid},
		{object{"internal": raw("null")}, invalid},
		{object{"invoiceId": 18}, invalid},
		{object{"version": 1}, invalid},
		{object{"createdAt": "2026-01-31T09:30:00Z"}, invalid},
		{object{"expectedVersion": 1}, invalid},
	} {
		if a := c.post(t, invoices, invoiceBody(customer).with(bad.change)); a.status != bad.status {
			t.Errorf("an invoice with %.80v answered %d, want %d: %s", bad.change, a.status, bad.status, a.body)
		}
	}
	for _, change := range []object{
		{"name": nil}, {"name": ""}, {"name": "   "}, {"name": strings.Repeat("n", 201)}, {"email": "no address"}, {"email": "@"}, {"email": "a@"}, {"reference": ""}, {"customerId": 5},
	} {
		if a := c.post(t, customers, object{"name": "Bad"}.with(change)); a.status != invalid {
			t.Errorf("a customer with %.80v answered %d: %s", change, a.status, a.body)
		}
	}
	for _, body := range []object{{"email": "x", "role": "viewer"}, {"email": "x@example.org", "role": "god"}, {"email": "x@example.org", "role": "Viewer"}, {"email": "ü@example.org", "role": "viewer"}} {
		if a := c.post(t, path("tenants", tenant, "invites"), body); a.status != invalid {
			t.Errorf("an invite %v answered %d: %s", body, a.status, a.body)
		}
	}
	for body, status := range map[string]int{`{"name":"x","region":"nowhere"}`: impossible, `{"name":"x","tier":"gold"}`: invalid, `{"name":" "}`: invalid, `{"name":"x","tenantId":"T99"}`: invalid, `{"name":"x","cell":"C2"}`: invalid} {
		if a := c.post(t, "/tenants", body); a.status != status {
			t.Errorf("a tenant %s answered %d, want %d: %s", body, a.status, status, a.body)
		}
	}
}

// badPaths sends paths that two programs could read differently.
func badPaths(t *testing.T, c caller, tenant string) {
	in := path("tenants", tenant)
	for _, p := range []string{
		in + "/invoices%2F17", in + "/invoices/17%2F", "/tenants%2f" + tenant, in + "%5Cinvoices", in + "/invoices/%2e%2e/customers", in + "/../" + tenant, in + "/./invoices", in + "/invoices/..", in + "/invoices/.",
		in + "/invoices/%2E", "//tenants/" + tenant, in + "//invoices", in + "/invoices/", "/tenants/", in + "/", in + "/invoices/%00", in + "/invoices/1%0a", in + "/invoices/1%0d%0aX-Injected:%20yes", "/tenants/%00/invoices", "/tenants/T7%00/invoices", "/%2e/me", "/me/..", "/../me", "/..%2fme", "/%2e%2e/me",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r := request{method: method, path: p}
			if method == http.MethodPost {
				r.body = object{}
			}
			a := c.do(t, r)
			if a.status != http.StatusBadRequest {
				t.Errorf("%s %q answered %d, want 400: %s", method, p, a.status, a.body)
			}
			if a.header.Get("X-Injected") != "" || a.header.Get("Location") != "" {
				t.Errorf("%s %q answered with the headers %v", method, p, a.header)
			}
		}
	}
	for _, p := range []string{"/", "/tenant", "/Tenants", "/ME", "/me;x=1", "/tenants/" + strings.ToLower(tenant) + "/invoices/1x", in + "/nothing", in + "/invoices/1/lines", "/internal/status", "/internal/directory/propose", "/metrics", "/debug/pprof", "/admin", "/users", "/cells", "/favicon.ico", "/.well-known/x"} {
		if a := c.get(t, p); a.status != http.StatusNotFound {
			t.Errorf("GET %q answered %d, want 404: %s", p, a.status, a.body)
		}
	}
	if a := c.get(t, "/"+strings.Repeat("a", 60_000)); a.status != http.StatusNotFound && a.status != http.StatusRequestHeaderFieldsTooLarge && a.status != http.StatusRequestURITooLong {
		t.Errorf("a very long path answered %d", a.status)
	}
	many := http.Header{}
	for i := range 100 {
		many[fmt.Sprintf("X-Filler-%d", i)] = []string{"x"}
	}
	c.do(t, request{method: http.MethodGet, path: "/me", header: many}).want(t, http.StatusRequestHeaderFieldsTooLarge)
	c.do(t, request{method: http.MethodGet, path: "/me", header: http.Header{"X-Filler": {strings.Repeat("x", 40<<10)}}}).want(t, http.StatusRequestHeaderFieldsTooLarge)
}

// badQueries sends query parameters that are unknown, repeated or out of range.
func badQueries(t *testing.T, c caller, tenant string) {
	for list, queries := range map[string][]string{
		path("tenants", tenant, "invoices"): {
			"limit=0", "limit=501", "limit=-1", "limit=", "limit=1.5", "limit=01", "limit=+1", "limit=%201", "limit=1&limit=1", "limit=99999999999999999999", "limit=abc", "LIMIT=1",
			"sort=", "sort=amount", "sort=invoiceid", "sort=--invoiceId", "sort=invoiceId;drop", "sort=customerId", "status=", "status=Draft", "status=gone", "status=draft&status=paid",
			"currency=usd", "currency=", "currency=XXY", "customerId=0", "customerId=-1", "customerId=x", "customerId=99999999999999999999", "customerId=1.0",
			"createdAfter=yesterday", "createdAfter=", "createdBefore=2026-01-31", "createdBefore=2026-01-31T09:30:00%2B01:00", "createdAfter=1", "unknown=1", "offset=1", "page=1", "tenantId=T8", "=1", "%zz=1", "a;b=1", "limit=5;sort=invoiceId", "%00=1", "reference=x",
		},
		path("tenants", tenant, "customers"):   {"limit=0", "limit=501", "sort=invoiceId", "sort=name", "status=draft", "currency=USD", "customerId=1", "createdAfter=x", "x", "reference=%FF", "reference=%00", "reference="},
		path("tenants", tenant, "invoices", 1): {"x=1", "limit=1", "version=1", "%zz"},
		path("tenants", tenant, "members"):     {"limit=1", "x=1", "%zz"},
		path("tenants", tenant, "invites"):     {"limit=1", "x=1"},
		path("tenants", tenant):                {"x=1"},
		"/tenants":                             {"limit=1", "cursor=x"},
		"/me":                                  {"x=1"},
	} {
		for _, q := range queries {
			if a := c.get(t, list+"?"+q); a.status != http.StatusBadRequest {
				t.Errorf("GET %s?%s answered %d, want 400: %s", list, q, a.status, a.body)
			}
		}
	}
	invoices := path("tenants", tenant, "invoices")
	for _, name := range []string{"Celld-Min-Index", "Celld-Consistency"} {
		for _, value := range []string{"", "x", "1", "1.", ".1", "0.1", "1.-1", "1.1.1", "01.1", "1.99999999999999999999", "99999999999999999999.1", "strong", "Stale", "stale,stale"} {
			a := c.do(t, request{method: http.MethodGet, path: invoices, header: http.Header{name: {value}}})
			if a.status != http.StatusBadRequest {
				t.Errorf("%s: %q answered %d, want 400: %.200s", name, value, a.status, a.body)
			}
		}
	}
}

// badMethods sends methods that a path does not have.
func badMethods(t *testing.T, c caller, tenant string) {
	patterns := map[string]map[string]bool{}
	for _, route := range gateway.Routes() {
		if patterns[route.Pattern] == nil {
			patterns[route.Pattern] = map[string]bool{}
		}
		patterns[route.Pattern][route.Method] = true
	}
	for pattern, has := range patterns {
		p := strings.Replace(pattern, "{tenant}", tenant, 1)
		if open := strings.IndexByte(p, '{'); open >= 0 {
			p = p[:open] + "1"
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "PROPFIND", "get", "X"} {
			if has[method] {
				continue
			}
			a := c.do(t, request{method: method, path: p})
			if a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s answered %d, want 405: %s", method, p, a.status, a.body)
				continue
			}
			allow := map[string]bool{}
			for name := range strings.SplitSeq(a.header.Get("Allow"), ", ") {
				allow[name] = true
			}
			if !maps.Equal(allow, has) {
				t.Errorf("%s %s: Allow is %q, the routes have %v", method, p, a.header.Get("Allow"), slices.Sorted(maps.Keys(has)))
			}
		}
	}
}
