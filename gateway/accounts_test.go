package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// TestBadBodies: bad input to the directory's routes has its documented answer.
func TestBadBodies(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	for _, r := range Routes() {
		good := bodyOf(r.Name)
		if good == "" || r.Target == Cell {
			continue
		}
		send := func(body string, header http.Header) answer {
			return w.send(t, request{user: "U7", method: r.Method, path: aim(r.Pattern, "T7"), body: body, header: header})
		}
		for name, body := range map[string]string{
			"empty": "", "no object": "[]", "cut": good[:len(good)-1], "trailing": good + "x", "unknown field": strings.Replace(good, "{", `{"nope":1,`, 1),
			"another case": strings.Replace(good, `{"`, `{"Z`, 1), "twice": strings.Replace(good, "{", good[:len(good)-1]+",", 1), "no field": "{}",
			"bad UTF-8": strings.Replace(good, `:"`, ":\"\xff", 1), "NUL": strings.Replace(good, `:"`, `:"\u0000`, 1), "wrong type": `{"name":5,"email":5,"role":5,"token":5,"password":5}`,
		} {
			if a := send(body, nil); a.status != 400 {
				t.Errorf("%s with %s: %d %s", r.Name, name, a.status, a.body)
			}
		}
		if a := send(good+strings.Repeat(" ", 300<<10), nil); a.status != 413 || a.problem(t) != "body-too-large" {
			t.Errorf("%s with 300 KiB: %d %s", r.Name, a.status, a.body)
		}
		if a := send(good, http.Header{"Content-Type": {"text/plain"}}); a.status != 415 {
			t.Errorf("%s with another type: %d %s", r.Name, a.status, a.body)
		}
		a := w.send(t, request{user: "U7", method: r.Method, path: aim(r.Pattern, "T7") + "?x=1", body: good})
		if a.status != 400 || a.problem(t) != "invalid-query" {
			t.Errorf("%s with a query: %d %s", r.Name, a.status, a.body)
		}
	}
	for _, path := range []string{"/me", "/tenants", "/tenants/T7", "/tenants/T7/members", "/tenants/T7/invites"} {
		if a := w.call(t, "U7", "GET", path+"?x=1", nil).want(t, 400); a.problem(t) != "invalid-query" {
			t.Errorf("%s with a query: %s", path, a.body)
		}
	}
}

func TestSessions(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	w.operator(t, "POST", "/users", map[string]any{"userId": "P1", "email": "p1@example.org", "name": "P", "password": "correct horse"}).want(t, 201)
	var session sessionJSON
	w.call(t, "", "POST", "/sessions", map[string]any{"email": "P1@example.org", "password": "correct horse"}).want(t, 201).into(t, &session)
	w.call(t, session.Token, "GET", "/me", nil).want(t, 200)
	w.call(t, session.Token, "DELETE", "/sessions/current", nil).want(t, 204)
	w.call(t, session.Token, "GET", "/me", nil).want(t, 401)
	if a := w.call(t, "U7", "DELETE", "/sessions/current", nil).want(t, 409); a.problem(t) != "not-a-session" {
		t.Errorf("%s", a.body)
	}
	unknown := w.call(t, "", "POST", "/sessions", map[string]any{"email": "nobody@example.org", "password": "correct horse"}).want(t, 401)
	wrong := w.call(t, "", "POST", "/sessions", map[string]any{"email": "p1@example.org", "password": "correct house"}).want(t, 401)
	id := func(a answer) string { return strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), "ID") }
	if id(unknown) != id(wrong) || without(unknown.header) != without(wrong.header) {
		t.Errorf("%s\n%s", unknown.body, wrong.body)
	}
	if strings.Contains(w.log.String(), "correct h") {
		t.Error("the log has a password")
	}
}

func TestMembers(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	at := "/tenants/T7/members"
	var members listJSON[memberJSON]
	w.call(t, "V7", "GET", at, nil).want(t, 200).into(t, &members)
	if len(members.Items) != 4 {
		t.Errorf("%+v", members)
	}
	w.call(t, "V7", "PATCH", at+"/U9", map[string]any{"role": "admin"}).want(t, 403)
	w.call(t, "V7", "DELETE", at+"/U9", nil).want(t, 403)
	w.call(t, "U7", "PATCH", at+"/U9", map[string]any{"role": "king"}).want(t, 400)
	w.call(t, "U7", "PATCH", at+"/U8", map[string]any{"role": "admin"}).want(t, 404)
	w.call(t, "U7", "PATCH", at+"/%C3%9C", map[string]any{"role": "admin"}).want(t, 404)
	w.call(t, "U7", "DELETE", at+"/U8", nil).want(t, 404)
	w.call(t, "U7", "PATCH", at+"/U9", map[string]any{"role": "admin"}).want(t, 200)
	w.call(t, "U9", "PATCH", at+"/V7", map[string]any{"role": "owner"}).want(t, 403)
	w.call(t, "U9", "PATCH", at+"/U7", map[string]any{"role": "viewer"}).want(t, 403)
	if a := w.call(t, "U7", "DELETE", at+"/U7", nil).want(t, 409); a.problem(t) != "last-owner" {
		t.Errorf("%s", a.body)
	}
	w.call(t, "V7", "DELETE", at+"/V7", nil).want(t, 204)
	w.call(t, "V7", "GET", at, nil).want(t, 404)

	invite := request{user: "U7", method: "POST", path: "/tenants/T7/invites", body: map[string]any{"email": "x0@example.org", "role": "viewer"}, header: http.Header{"Idempotency-Key": {"i"}}}
	var first, again inviteJSON
	w.send(t, invite).want(t, 201).into(t, &first)
	a := w.send(t, invite).want(t, 201)
	a.into(t, &again)
	if first.Token == "" || again.Token != "" || again.InviteID != first.InviteID || a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	w.call(t, "U8", "POST", "/invites/accept", map[string]any{"token": first.Token}).want(t, 404)
	w.call(t, "U7", "DELETE", "/tenants/T7/invites/"+first.InviteID, nil).want(t, 204)
	w.call(t, "U7", "DELETE", "/tenants/T7/invites/"+first.InviteID, nil).want(t, 404)
	w.call(t, "X0", "POST", "/invites/accept", map[string]any{"token": first.Token}).want(t, 404)
}
