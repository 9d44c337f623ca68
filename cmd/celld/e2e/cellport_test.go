package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"celld/cmd/celld/settings"
	"celld/gateway/identity"
	"celld/store/tenant"
)

// port is a cell's leader as its inner port shows it.
type port struct {
	w             *world
	cell, node    string
	address       string
	tenant, other string // two tenants of the cell
	owner         caller // of both
	good          identity.Context
}

// target is the path of an invoice.
func (p *port) target() string { return path("tenants", p.tenant, "invoices", 1) }

// cellPort shows that a cell believes nobody but a gateway with a context that
// was signed for this very cell, tenant, role and moment.
func cellPort(t *testing.T, w *world) {
	owner := w.newUser(t)
	p := &port{w: w, owner: owner, cell: "C2", tenant: w.newTenantIn(t, owner, "C2"), other: w.newTenantIn(t, owner, "C2")}
	newInvoice(t, owner, p.tenant, newCustomer(t, owner, p.tenant))
	state := w.awaitCell(t, p.cell)
	p.node, p.address = state.leader, state.nodes[state.leader]
	// Nobody who exists: the cell remembers how high the revision was.
	p.good = w.contextOf(t, p.tenant, "P403", tenant.Owner)
	t.Run("a good one passes", p.passes)
	t.Run("certificates", p.certificates)
	t.Run("contexts", p.contexts)
	t.Run("writes", p.writes)
	t.Run("an older policy", p.olderPolicy)
	t.Run("other headers", p.otherHeaders)
}

func (p *port) passes(t *testing.T) {
	sign := p.sign(t, time.Now)
	status, _, body := p.get(t, "G1", p.target(), http.Header{"Celld-Context": {sign(p.good)}})
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"invoiceId":1`)) {
		t.Fatalf("a good context: %d %s", status, body)
	}
}

func (p *port) certificates(t *testing.T) {
	sign := p.sign(t, time.Now)
	token := http.Header{"Celld-Context": {sign(p.good)}}
	for _, route := range []string{p.target(), "/internal/status", "/internal/marks/x"} {
		if status, err := p.try(t, "", http.MethodGet, route, token); err == nil {
			t.Errorf("%s without a client certificate: %d", route, status)
		}
		if status, err := p.try(t, "C5/n1", http.MethodGet, route, token); err == nil && status != http.StatusForbidden {
			t.Errorf("%s for a node of another cell: %d", route, status)
		}
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		if status, err := p.try(t, p.cell+"/"+node, http.MethodGet, p.target(), token); err == nil && status != http.StatusForbidden {
			t.Errorf("a tenant's route for a node of the same cell: %d", status)
		}
	}
	if status, err := p.try(t, p.cell+"/n1", http.MethodPut, "/internal/tenants/"+string(p.good.UID), token); err == nil && status != http.StatusForbidden {
		t.Errorf("a provisioning by a node: %d", status)
	}
	if status, err := p.try(t, p.cell+"/n1", http.MethodPost, "/internal/tenants/"+string(p.good.UID)+"/marks", token); err == nil && status != http.StatusForbidden {
		t.Errorf("a mark by a node: %d", status)
	}
}

func (p *port) contexts(t *testing.T) {
	for what, c := range p.badContexts(t) {
		status, header, body := p.get(t, "G1", c.path(p.target()), http.Header{"Celld-Context": c.tokens})
		if status != c.status {
			t.Errorf("%s: %d, want %d: %s", what, status, c.status, body)
		}
		if c.slug != "" && !bytes.Contains(body, []byte(`"type":"`+c.slug+`"`)) {
			t.Errorf("%s: not the problem %s: %s", what, c.slug, body)
		}
		if bytes.Contains(body, []byte("amountMinor")) {
			t.Errorf("%s: the answer holds an invoice: %s", what, body)
		}
		if c.slug == "placement-changed" && c.known && header.Get("Celld-Epoch") != "1" {
			t.Errorf("%s: Celld-Epoch is %q, want 1", what, header.Get("Celld-Epoch"))
		}
	}
}

func (p *port) writes(t *testing.T) {
	sign := p.sign(t, time.Now)
	viewer := p.good
	viewer.Actor, viewer.Role = "V404", tenant.Viewer
	epoch := p.good
	epoch.Epoch = 2
	for what, c := range map[string]struct {
		context identity.Context
		status  int
	}{"a viewer": {viewer, http.StatusForbidden}, "another epoch": {epoch, http.StatusServiceUnavailable}} {
		status, err := p.try(t, "G1", http.MethodPost, path("tenants", p.tenant, "customers"), http.Header{"Celld-Context": {sign(c.context)}})
		if err != nil || status != c.status {
			t.Errorf("a write by %s: %d %v, want %d", what, status, err, c.status)
		}
	}
	if n := len(walk(t, p.owner, path("tenants", p.tenant, "customers"), "", 50, nil)); n != 1 {
		t.Errorf("there are %d customers", n)
	}
}

func (p *port) olderPolicy(t *testing.T) {
	sign := p.sign(t, time.Now)
	c := p.good
	c.Actor, c.Revision = "P404", 8
	for _, step := range []struct {
		revision tenant.Revision
		status   int
	}{{8, http.StatusOK}, {7, http.StatusServiceUnavailable}, {8, http.StatusOK}, {9, http.StatusOK}, {8, http.StatusServiceUnavailable}, {1, http.StatusServiceUnavailable}} {
		c.Revision = step.revision
		status, _, body := p.get(t, "G1", p.target(), http.Header{"Celld-Context": {sign(c)}})
		if status != step.status {
			t.Fatalf("revision %d: %d, want %d: %s", step.revision, status, step.status, body)
		}
		if status != http.StatusOK && !bytes.Contains(body, []byte(`"type":"stale-policy"`)) {
			t.Fatalf("revision %d: %s", step.revision, body)
		}
	}
}

func (p *port) otherHeaders(t *testing.T) {
	sign := p.sign(t, time.Now)
	viewer := p.good
	viewer.Actor, viewer.Role = "V404", tenant.Viewer
	plain, _, want := p.get(t, "G1", p.target(), http.Header{"Celld-Context": {sign(viewer)}})
	for what, forged := range forgeries(t, p.w) {
		headers := forged.Clone()
		headers.Set("Celld-Context", sign(viewer))
		if status, _, body := p.get(t, "G1", p.target(), headers); status != plain || !bytes.Equal(body, want) {
			t.Errorf("%s: %d %s, without it %d %s", what, status, body, plain, want)
		}
	}
}

// badContext is what is sent in place of a good context.
type badContext struct {
	tokens []string
	status int
	slug   string
	known  bool // the cell knows the tenant, and tells its epoch
	other  bool // asks for the other tenant's path
	p      *port
}

func (c badContext) path(target string) string {
	if c.other {
		return strings.Replace(target, c.p.tenant, c.p.other, 1)
	}
	return target
}

func (p *port) badContexts(t *testing.T) map[string]badContext {
	t.Helper()
	const denied, moved = http.StatusUnauthorized, http.StatusServiceUnavailable
	sign := p.sign(t, time.Now)
	change := func(do func(*identity.Context)) []string {
		c := p.good
		do(&c)
		return []string{sign(c)}
	}
	good := sign(p.good)
	parts := strings.Split(good, ".")
	all := map[string]badContext{
		"none":                {nil, denied, "context-missing", false, false, p},
		"empty":               {[]string{""}, denied, "context-missing", false, false, p},
		"garbage":             {[]string{"garbage"}, denied, "context-invalid", false, false, p},
		"very long":           {[]string{strings.Repeat("A", 20_000)}, denied, "context-invalid", false, false, p},
		"two":                 {[]string{good, good}, denied, "context-invalid", false, false, p},
		"no signature":        {[]string{parts[0] + "." + parts[1] + "."}, denied, "context-invalid", false, false, p},
		"changed signature":   {[]string{parts[0] + "." + parts[1] + "." + flipped(parts[2])}, denied, "context-invalid", false, false, p},
		"algorithm none":      {[]string{p.handmade(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good)}, denied, "context-invalid", false, false, p},
		"HMAC by public key":  {[]string{p.handmade(t, jwt.SigningMethodHS256, p.public(t), good)}, denied, "context-invalid", false, false, p},
		"another cell":        {change(func(c *identity.Context) { c.Cell = "C5" }), denied, "context-invalid", false, false, p},
		"another cell's key":  {change(func(c *identity.Context) { c.CellKey = tenant.CellKey(p.w.awaitCell(t, "C5").key) }), denied, "context-invalid", false, false, p},
		"another tenant":      {change(func(c *identity.Context) { c.Tenant = tenant.ID(p.other) }), denied, "context-invalid", false, false, p},
		"for another path":    {[]string{good}, denied, "context-invalid", false, true, p},
		"a provisioner's":     {change(func(c *identity.Context) { c.Act, c.Role, c.Revision = identity.ByProvision, 0, 0 }), denied, "context-invalid", false, false, p},
		"expired":             {[]string{p.sign(t, ago(21*time.Second))(p.good)}, denied, "context-invalid", false, false, p},
		"long expired":        {[]string{p.sign(t, ago(24*time.Hour))(p.good)}, denied, "context-invalid", false, false, p},
		"from the future":     {[]string{p.sign(t, ago(-time.Minute))(p.good)}, denied, "context-invalid", false, false, p},
		"another epoch":       {change(func(c *identity.Context) { c.Epoch = 2 }), moved, "placement-changed", true, false, p}, // an old one cannot be had before there are moves
		"an unknown tenant":   {change(func(c *identity.Context) { c.UID = "aaaaaaaaaaaaaaaaaaaaaaaaaa" }), moved, "placement-changed", false, false, p},
		"another tenant's id": {change(func(c *identity.Context) { c.UID = tenant.UID(p.uid(t, p.other)) }), http.StatusNotFound, "not-found", false, false, p},
	}
	return all
}

// handmade signs a good token's claims by another method.
func (p *port) handmade(t *testing.T, method jwt.SigningMethod, key any, good string) string {
	t.Helper()
	claims := jwt.MapClaims{}
	parsed, _, err := jwt.NewParser().ParseUnverified(good, claims)
	if err != nil {
		t.Fatal(err)
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = parsed.Header["kid"]
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func (p *port) public(t *testing.T) []byte {
	t.Helper()
	return p.w.signer(t, "G1").Key().Public
}

func (p *port) uid(t *testing.T, in string) string {
	t.Helper()
	return p.w.operator.get(t, path("tenants", in)).want(t, http.StatusOK).text(t, "uid")
}

// sign signs contexts as G1 does, by another clock.
func (p *port) sign(t *testing.T, now func() time.Time) func(identity.Context) string {
	t.Helper()
	key, err := settings.ContextKey(filepath.Join(p.w.dir, "run", "G1", settings.ContextKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := identity.NewSigner("G1", key, now)
	if err != nil {
		t.Fatal(err)
	}
	return func(c identity.Context) string {
		token, err := s.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
}

func ago(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(-d) } }

// flipped is a signature with one bit changed.
func flipped(signature string) string {
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || len(raw) == 0 {
		return "x"
	}
	raw[0] ^= 1
	return base64.RawURLEncoding.EncodeToString(raw)
}

// get asks the port in the name of a member, "" for nobody.
func (p *port) get(t *testing.T, member, target string, header http.Header) (status int, answer http.Header, body []byte) {
	t.Helper()
	resp, err := p.send(t, member, http.MethodGet, target, header)
	if err != nil {
		t.Fatalf("GET %s as %s: %v", target, member, err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, withoutRequestID(body)
}

// try asks for the status alone; err is a refusal below HTTP.
func (p *port) try(t *testing.T, member, method, target string, header http.Header) (int, error) {
	t.Helper()
	resp, err := p.send(t, member, method, target, header)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (p *port) send(t *testing.T, member, method, target string, header http.Header) (*http.Response, error) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"name":"From the inner port"}`)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("https://%s%s", p.address, target), body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "from the inner port")
	}
	return p.w.inner(t, member, p.cell, p.node).Do(req)
}

// withoutRequestID is a body without what differs from request to request.
func withoutRequestID(body []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil || all["requestId"] == nil {
		return body
	}
	return bytes.ReplaceAll(body, all["requestId"], []byte(`"ID"`))
}
