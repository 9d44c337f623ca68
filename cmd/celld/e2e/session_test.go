package e2e

import (
	"bytes"
	"net/http"
	"testing"
)

// sessions shows that a password opens a session and that its end is one.
func sessions(t *testing.T, w *world) {
	const password = "correct horse battery staple"
	name := w.serial("U")
	email := name + "@example.org"
	made := w.operator.post(t, "/users", object{"userId": name, "email": email, "name": "With a password", "password": password}).want(t, http.StatusCreated)
	if bytes.Contains(made.body, []byte(password)) {
		t.Fatal("the password came back")
	}
	nobody := w.nobody()
	login := func(email, password string) answer {
		return nobody.post(t, "/sessions", object{"email": email, "password": password})
	}
	opened := login(email, password).want(t, http.StatusCreated)
	user := w.as(name, opened.text(t, "token"))
	user.get(t, "/me").want(t, http.StatusOK)

	wrong := login(email, "wrong"+password).want(t, http.StatusUnauthorized)
	unknown := login("nobody@example.org", password).want(t, http.StatusUnauthorized)
	if a, b := comparable(wrong), comparable(unknown); a != b {
		t.Errorf("a wrong password and an unknown e-mail differ:\n%s\n%s", a, b)
	}

	second := w.as(name, login(email, password).want(t, http.StatusCreated).text(t, "token"))
	for _, base := range w.gateways {
		user.at(base).get(t, "/me").want(t, http.StatusOK)
		second.at(base).get(t, "/me").want(t, http.StatusOK)
	}
	user.delete(t, "/sessions/current").want(t, http.StatusNoContent)
	for _, base := range w.gateways {
		user.at(base).get(t, "/me").want(t, http.StatusUnauthorized)
		second.at(base).get(t, "/me").want(t, http.StatusOK)
	}
	user.delete(t, "/sessions/current").want(t, http.StatusUnauthorized)

	for _, token := range []string{"", "x", user.token[1:], user.token + "A", second.token[:len(second.token)-1] + "~", second.token + " "} {
		if a := w.as("forger", token).get(t, "/me"); a.status != http.StatusUnauthorized && token != second.token+" " {
			t.Errorf("the token %q got %d", token, a.status)
		}
	}
	basic := w.nobody()
	for _, value := range []string{"Basic " + second.token, "Bearer", "bearer", second.token, "Bearer  " + second.token, "Bearer " + second.token + "," + second.token} {
		a := basic.do(t, request{method: http.MethodGet, path: "/me", header: http.Header{"Authorization": {value}}})
		a.want(t, http.StatusUnauthorized)
	}
}

// suspension shows that nobody enters a suspended tenant, and that resuming
// brings everything back.
func suspension(t *testing.T, w *world) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	viewer := w.newMember(t, owner, tenant, "viewer")
	stranger := w.newUser(t)
	customer := newCustomer(t, owner, tenant)
	invoice := path("tenants", tenant, "invoices", newInvoice(t, owner, tenant, customer))

	w.operator.do(t, request{method: http.MethodPost, path: path("tenants", tenant, "suspend")}).want(t, http.StatusOK)
	for _, base := range w.gateways {
		for _, member := range []caller{owner, viewer} {
			member.at(base).get(t, invoice).refused(t, http.StatusForbidden, "tenant-suspended")
			member.at(base).get(t, path("tenants", tenant, "members")).refused(t, http.StatusForbidden, "tenant-suspended")
		}
		owner.at(base).post(t, path("tenants", tenant, "invoices"), invoiceBody(customer)).refused(t, http.StatusForbidden, "tenant-suspended")
		suspended := stranger.at(base).get(t, invoice).want(t, http.StatusNotFound)
		unknown := stranger.at(base).get(t, "/tenants/T404/invoices/1").want(t, http.StatusNotFound)
		if a, b := comparable(suspended), comparable(unknown); a != b {
			t.Errorf("a suspended and an unknown tenant differ for a stranger:\n%s\n%s", a, b)
		}
	}
	w.operator.do(t, request{method: http.MethodPost, path: path("tenants", tenant, "resume")}).want(t, http.StatusOK)
	for _, base := range w.gateways {
		viewer.at(base).get(t, invoice).want(t, http.StatusOK)
		owner.at(base).post(t, path("tenants", tenant, "invoices"), invoiceBody(customer)).want(t, http.StatusCreated)
	}
}
