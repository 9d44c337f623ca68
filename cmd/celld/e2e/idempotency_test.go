package e2e

import (
	"bytes"
	"net/http"
	"testing"
)

const headerReplayed = "Idempotency-Replayed"

// keyed is a tenant in which idempotency keys are tried out.
type keyed struct {
	w        *world
	owner    caller
	tenant   string
	customer int64
	invoices string // path
}

// idempotency shows that a key stands for one effect, and for whom it does.
func idempotency(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	k := keyed{w, owner, tenant, newCustomer(t, owner, tenant), path("tenants", tenant, "invoices")}
	t.Run("fifty at one time", k.parallel)
	t.Run("another payload", k.payload)
	t.Run("the same payload written otherwise", k.spelling)
	t.Run("another actor, tenant, operation", k.scope)
	t.Run("two objects of one route", k.objects)
	t.Run("a refusal is not recorded", k.refusal)
	t.Run("a secret is not replayed", k.secret)
	t.Run("a replay is rendered for the role of now", k.role)
	t.Run("a replay shows the membership of now", k.membership)
}

func (k keyed) parallel(t *testing.T) {
	const callers = 50
	before := len(walk(t, k.owner, k.invoices, "", 500, nil))
	answers := make([]answer, callers)
	together(callers, func(i int) {
		answers[i], _ = k.owner.try(t.Context(), request{method: http.MethodPost, path: k.invoices, key: "fifty", body: invoiceBody(k.customer)})
	})
	firsts := 0
	for _, a := range answers {
		if a.status != http.StatusCreated {
			t.Fatalf("one of %d answered %d: %s", callers, a.status, a.body)
		}
		if !bytes.Equal(a.body, answers[0].body) {
			t.Fatalf("two bodies under one key:\n%s\n%s", answers[0].body, a.body)
		}
		switch replayed := a.header.Get(headerReplayed); replayed {
		case "":
			firsts++
		case "true":
		default:
			t.Fatalf("%s: %q", headerReplayed, replayed)
		}
	}
	if firsts != 1 {
		t.Fatalf("%d answers say that they are the first, want 1", firsts)
	}
	if now := len(walk(t, k.owner, k.invoices, "", 500, nil)); now != before+1 {
		t.Fatalf("%d invoices came of one key", now-before)
	}
}

func (k keyed) payload(t *testing.T) {
	first := request{method: http.MethodPost, path: k.invoices, key: "payload", body: invoiceBody(k.customer)}
	made := k.owner.do(t, first).want(t, http.StatusCreated)
	other := first
	other.body = invoiceBody(k.customer).with(object{"amountMinor": 1251})
	k.owner.do(t, other).refused(t, http.StatusUnprocessableEntity, "idempotency-key-reused")
	again := k.owner.do(t, first).want(t, http.StatusCreated)
	if !bytes.Equal(made.body, again.body) || again.header.Get(headerReplayed) != "true" {
		t.Fatalf("the first answer was not replayed: %s", again.body)
	}
}

func (k keyed) spelling(t *testing.T) {
	first := k.owner.do(t, request{method: http.MethodPost, path: k.invoices, key: "written", body: invoiceBody(k.customer)}).want(t, http.StatusCreated)
	spaced := k.owner.do(t, request{method: http.MethodPost, path: k.invoices, key: "written",
		body: ` { "currency" : "USD", "amountMinor":1250 , "customerId" : ` + path(k.customer)[1:] + ` } `})
	if spaced.status != http.StatusCreated || !bytes.Equal(first.body, spaced.body) {
		t.Fatalf("order of members and blanks made another payload: %d %s", spaced.status, spaced.body)
	}
}

func (k keyed) scope(t *testing.T) {
	member := k.w.newMember(t, k.owner, k.tenant, "member")
	second := k.w.newTenant(t, k.owner)
	other := newCustomer(t, k.owner, second)
	post := request{method: http.MethodPost, path: k.invoices, key: "shared", body: invoiceBody(k.customer)}
	one := k.owner.do(t, post).want(t, http.StatusCreated)
	two := member.do(t, post).want(t, http.StatusCreated)
	if two.header.Get(headerReplayed) != "" || one.number(t, "invoiceId") == two.number(t, "invoiceId") {
		t.Fatal("another actor's key was taken for the first one's")
	}
	elsewhere := post
	elsewhere.path, elsewhere.body = path("tenants", second, "invoices"), invoiceBody(other)
	if a := k.owner.do(t, elsewhere).want(t, http.StatusCreated); a.header.Get(headerReplayed) != "" {
		t.Fatal("a key of one tenant counted in another")
	}
	for _, r := range []request{
		{method: http.MethodPost, path: path("tenants", k.tenant, "customers"), key: "shared", body: object{"name": "Grace"}},
		{method: http.MethodPut, path: path("tenants", k.tenant, "invoices", one.number(t, "invoiceId")), key: "shared", ifMatch: etag(1), body: invoiceBody(k.customer)},
		{method: http.MethodPost, path: path("tenants", k.tenant, "invites"), key: "shared", body: object{"email": "shared@example.org", "role": "viewer"}},
		{method: http.MethodPost, path: "/tenants", key: "shared", body: object{"name": "Shared"}},
	} {
		if a := k.owner.do(t, r); a.status >= 300 || a.header.Get(headerReplayed) != "" {
			t.Errorf("%s %s under a key of another operation: %d %s", r.method, r.path, a.status, a.body)
		}
	}
}

func (k keyed) objects(t *testing.T) {
	one, two := newInvoice(t, k.owner, k.tenant, k.customer), newInvoice(t, k.owner, k.tenant, k.customer)
	r := request{method: http.MethodPut, path: path("tenants", k.tenant, "invoices", one), key: "objects", ifMatch: etag(1), body: invoiceBody(k.customer)}
	k.owner.do(t, r).want(t, http.StatusOK)
	r.path = path("tenants", k.tenant, "invoices", two)
	k.owner.do(t, r).refused(t, http.StatusUnprocessableEntity, "idempotency-key-reused")
}

func (k keyed) refusal(t *testing.T) {
	second := k.w.newTenant(t, k.owner)
	r := request{method: http.MethodPost, path: path("tenants", second, "invoices"), key: "refused", body: invoiceBody(1)}
	k.owner.do(t, r).refused(t, http.StatusUnprocessableEntity, "unknown-customer")
	newCustomer(t, k.owner, second)
	if a := k.owner.do(t, r).want(t, http.StatusCreated); a.header.Get(headerReplayed) != "" {
		t.Fatal("a refusal was replayed")
	}
}

func (k keyed) secret(t *testing.T) {
	r := request{method: http.MethodPost, path: path("tenants", k.tenant, "invites"), key: "secret", body: object{"email": "secret@example.org", "role": "viewer"}}
	first := k.owner.do(t, r).want(t, http.StatusCreated)
	secret := first.text(t, "token")
	again := k.owner.do(t, r).want(t, http.StatusCreated)
	if again.header.Get(headerReplayed) != "true" || bytes.Contains(again.body, []byte(secret)) {
		t.Fatalf("the replay of an invite: %s", again.body)
	}
}

func (k keyed) role(t *testing.T) {
	finance := k.w.newMember(t, k.owner, k.tenant, "finance")
	r := request{method: http.MethodPost, path: k.invoices, key: "role", body: invoiceBody(k.customer).with(object{"internal": object{"note": "margin-note"}})}
	if first := finance.do(t, r).want(t, http.StatusCreated); !bytes.Contains(first.body, []byte("margin-note")) {
		t.Fatalf("finance does not see the internal part: %s", first.body)
	}
	k.owner.do(t, request{method: http.MethodPatch, path: path("tenants", k.tenant, "members", finance.name), body: object{"role": "member"}}).want(t, http.StatusOK)
	if again := finance.do(t, r); bytes.Contains(again.body, []byte("margin-note")) {
		t.Fatalf("a member is shown the internal part: %d %s", again.status, again.body)
	}
}

func (k keyed) membership(t *testing.T) {
	founding := request{method: http.MethodPost, path: "/tenants", key: "founding", body: object{"name": "Founded"}}
	founder, heir, guest := k.w.newUser(t), k.w.newUser(t), k.w.newUser(t)
	in := founder.do(t, founding).want(t, http.StatusCreated).text(t, "tenantId")
	invite := func(c caller, role string) object {
		a := founder.post(t, path("tenants", in, "invites"), object{"email": c.email(), "role": role})
		return object{"token": a.want(t, http.StatusCreated).text(t, "token")}
	}
	heir.post(t, "/invites/accept", invite(heir, "owner")).want(t, http.StatusOK)
	accepting := request{method: http.MethodPost, path: "/invites/accept", key: "accepting", body: invite(guest, "admin")}
	guest.do(t, accepting).want(t, http.StatusOK)
	member := func(c caller) string { return path("tenants", in, "members", c.name) }
	promoting := request{method: http.MethodPatch, path: member(guest), key: "promoting", body: object{"role": "finance"}}
	heir.do(t, promoting).want(t, http.StatusOK)

	for _, c := range []caller{founder, guest} {
		heir.do(t, request{method: http.MethodPatch, path: member(c), body: object{"role": "viewer"}}).want(t, http.StatusOK)
	}
	replays := func() []answer {
		return []answer{founder.do(t, founding), guest.do(t, accepting), heir.do(t, promoting)}
	}
	for _, a := range replays() {
		if role := a.text(t, "role"); role != "viewer" || a.header.Get(headerReplayed) != "true" {
			t.Errorf("%s answered %d with the role %s: %s", a.request.path, a.status, role, a.body)
		}
	}
	for _, c := range []caller{founder, guest} {
		heir.delete(t, member(c)).want(t, http.StatusNoContent)
	}
	for _, a := range replays() {
		a.want(t, http.StatusNotFound)
	}
}
