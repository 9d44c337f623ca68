package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/store/fault"
)

const invoice = "/tenants/T7/invoices/17"

// TestHop is what goes to a cell and what comes back, in the same process and over
// the wire.
func TestHop(t *testing.T) {
	local, inProcess := fakeWorld(t, nil)
	remote, elsewhere := remoteWorld(t)
	for name, at := range map[string]struct {
		w *world
		c *fakeCell
	}{"local": {local, inProcess}, "remote": {remote, elsewhere}} {
		t.Run(name, func(t *testing.T) {
			w, c := at.w, at.c
			c.all()
			a := w.send(t, request{user: "F7", method: "PUT", path: invoice + "?a=b&a=%20", body: bodyOf("updateInvoice"),
				header: http.Header{"If-Match": {`"5"`}, "Idempotency-Key": {"key 1"}, "Accept": {"application/json"}}}).want(t, 200)
			got := c.all()
			if len(got) != 1 || got[0].method != "PUT" || got[0].path != invoice || got[0].query != "a=b&a=%20" || got[0].body != bodyOf("updateInvoice") {
				t.Fatalf("the cell got %+v", got)
			}
			h, who := got[0].header, got[0].context
			if h.Get("If-Match") != `"5"` || h.Get("Idempotency-Key") != "key 1" || h.Get("Content-Type") != "application/json" || h.Get("Authorization") != "" {
				t.Errorf("the cell got the headers %v", h)
			}
			if who.Actor != "F7" || who.Tenant != "T7" || who.Role.String() != "finance" || who.Act != identity.ByMember || who.Gateway != "G1" || who.Epoch != 1 || who.Revision == 0 {
				t.Errorf("the cell was told %+v", who)
			}
			if a.header.Get("Celld-Index") != "1.7" || a.header.Get("Etag") != `"5"` || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Celld-Secret") != "" || a.header.Get("Set-Cookie") != "" {
				t.Errorf("the client got the headers %v", a.header)
			}
			w.call(t, "F7", "POST", "/tenants/T7/invoices", bodyOf("createInvoice")).want(t, 201)
			if got := c.all(); len(got) != 1 || len(got[0].header.Get("Idempotency-Key")) < 20 {
				t.Errorf("no key was made: %+v", got)
			}
			// As many header lines as the front door lets in, and the gateway's own.
			many := strings.Repeat("Accept: application/json\r\n", maxHeaders-1)
			if a := w.raw(t, "GET "+invoice+" HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer "+w.tokens["U7"]+"\r\n"+many+"\r\n"); !strings.HasPrefix(a, "HTTP/1.0 200 ") {
				t.Errorf("with many header lines: %s", a)
			}
			c.all()
			// A problem of the cell's comes back as it is.
			c.nodes["n1"].next(refuse(fault.New(fault.Precondition, "version-mismatch", "stale").With("currentVersion", 9)))
			a = w.call(t, "F7", "PUT", invoice, bodyOf("updateInvoice")).want(t, 412)
			if !strings.Contains(a.body, `"currentVersion":9`) || a.problem(t) != "version-mismatch" || len(c.all()) != 1 {
				t.Errorf("came back %s", a.body)
			}
		})
	}
}

// remoteWorld is a fakeWorld whose cell is reached over mutual TLS.
func remoteWorld(t testing.TB) (*world, *fakeCell) {
	t.Helper()
	c := newFakeCell(t, "C2", "n1", "n2", "n3")
	w := newWorld(t, nil)
	w.register(t, c, c.serveRemotely(t, w))
	w.people(t)
	return w, c
}

func TestRetries(t *testing.T) {
	w, c := fakeWorld(t, nil)
	n1, n2 := c.nodes["n1"], c.nodes["n2"]
	unsure := refuse(raftfsm.ErrUnknown)
	fenced := refuse(fault.New(fault.Fenced, "tenant-frozen", ""))
	moved := refuse(fault.New(fault.Moved, "placement-changed", ""))
	for _, v := range []struct {
		name   string
		script []http.HandlerFunc // of n1, the leader
		status int
		slug   string
		asked  int // requests that came to n1
	}{
		{"at once", nil, 201, "", 1},
		{"unknown outcome", []http.HandlerFunc{unsure}, 201, "", 2},
		{"moved, then there", []http.HandlerFunc{moved, moved}, 201, "", 3},
		{"frozen for a while", []http.HandlerFunc{fenced, fenced, fenced}, 201, "", 4},
		{"behind in policy", []http.HandlerFunc{refuse(fault.New(fault.Unavailable, "stale-policy", ""))}, 201, "", 2},
		{"busy once", []http.HandlerFunc{refuse(raftfsm.ErrBusy)}, 201, "", 2},
		{"busy for long", []http.HandlerFunc{refuse(raftfsm.ErrBusy), refuse(raftfsm.ErrBusy), refuse(raftfsm.ErrBusy)}, 503, "busy", 3},
		{"unknown, then a refusal", []http.HandlerFunc{unsure, refuse(fault.New(fault.Conflict, "reference-taken", ""))}, 409, "reference-taken", 2},
		{"unknown, then something else", []http.HandlerFunc{unsure, refuse(fault.New(fault.Unavailable, "something-else", ""))}, 503, "outcome-unknown", 2},
		{"a refusal", []http.HandlerFunc{refuse(fault.New(fault.Impossible, "unknown-customer", ""))}, 422, "unknown-customer", 1},
		{"a context that is refused", []http.HandlerFunc{refuse(identity.ErrBadContext)}, 201, "", 2},
		{"a context that is never taken", []http.HandlerFunc{refuse(identity.ErrBadContext), refuse(identity.ErrBadContext), refuse(identity.ErrBadContext)}, 503, "cell-unreachable", 3},
	} {
		t.Run(v.name, func(t *testing.T) {
			c.all()
			n1.next(v.script...)
			a := w.call(t, "U7", "POST", "/tenants/T7/invoices", bodyOf("createInvoice")).want(t, v.status)
			if v.slug != "" && a.problem(t) != v.slug {
				t.Errorf("answered %s", a.body)
			}
			if v.status == 503 && a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			got := n1.got()
			if len(got) != v.asked {
				t.Fatalf("asked %d times, want %d", len(got), v.asked)
			}
			for _, s := range got {
				if s.header.Get("Idempotency-Key") != got[0].header.Get("Idempotency-Key") || s.body != got[0].body || s.body == "" {
					t.Errorf("attempts differ: %+v", got)
				}
			}
		})
	}

	t.Run("the leader is followed", func(t *testing.T) {
		c.lead("n2")
		w.call(t, "U7", "GET", invoice, nil).want(t, 200)
		w.call(t, "U7", "GET", invoice, nil).want(t, 200)
		if got := n2.got(); len(got) != 2 {
			t.Errorf("n2 was asked %d times", len(got))
		}
		c.lead("n1")
	})
	for _, n := range c.nodes {
		n.forget()
	}
	t.Run("no leader", func(t *testing.T) {
		c.lead("")
		begun := time.Now()
		if a := w.call(t, "U7", "GET", invoice, nil).want(t, 503); a.problem(t) != "no-leader" {
			t.Errorf("answered %s", a.body)
		}
		if took := time.Since(begun); took > 2*w.cfg.Limits.Total {
			t.Errorf("it took %s", took)
		}
		c.all()
		w.send(t, request{user: "U7", method: "GET", path: invoice, header: http.Header{"Celld-Consistency": {"stale"}}}).want(t, 200)
		if got := c.all(); len(got) != 1 {
			t.Errorf("a stale read took %d attempts", len(got))
		}
		c.lead("n1")
	})
	t.Run("behind in policy until time ran out", func(t *testing.T) {
		c.all()
		n1.next(refuse(fault.New(fault.Unavailable, "stale-policy", "")), func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			notLeader("")(rw, r)
		})
		if a := w.call(t, "U7", "GET", invoice, nil).want(t, 503); a.problem(t) != "stale-policy" {
			t.Errorf("answered %s", a.body)
		}
		if got := n1.got(); len(got) != 2 {
			t.Errorf("asked %d times", len(got))
		}
	})
	t.Run("an index that is not there", func(t *testing.T) {
		c.all()
		for _, n := range c.nodes {
			n.next(refuse(raftfsm.ErrBehind))
		}
		header := http.Header{"Celld-Min-Index": {"1.999"}, "Celld-Consistency": {"stale"}}
		if a := w.send(t, request{user: "U7", method: "GET", path: invoice, header: header}).want(t, 503); a.problem(t) != "behind" {
			t.Errorf("answered %s", a.body)
		}
		if got := c.all(); len(got) > 2 {
			t.Errorf("asked %d times", len(got))
		}
		for _, n := range c.nodes {
			n.forget()
		}
	})
	t.Run("a place that is not there", func(t *testing.T) {
		c.all()
		ask := func(index string, status, asked int) answer {
			a := w.send(t, request{user: "V7", method: "GET", path: invoice, header: http.Header{"Celld-Min-Index": {index}, "Celld-Consistency": {"stale"}}}).want(t, status)
			if got := c.all(); len(got) != asked {
				t.Errorf("%q: asked %d times, want %d", index, len(got), asked)
			}
			return a
		}
		if a := ask("2.1", 503, 0); a.problem(t) != "placement-changed" || a.header.Get("Retry-After") == "" {
			t.Errorf("answered %v %s", a.header, a.body)
		}
		ask("1.999", 200, 1)
		for _, index := range []string{"02.1", "2", "2.", "2.x", "+2.1", "2.01", "2.99999999999999999999", "99999999999999999999.1"} {
			if got := minEpoch(http.Header{"Celld-Min-Index": {index}}); got != 0 { // malformed is the cell's to refuse
				t.Errorf("%q is of the epoch %d", index, got)
			}
		}
	})
	t.Run("a member is removed meanwhile", func(t *testing.T) {
		c.all()
		n1.next(func(rw http.ResponseWriter, r *http.Request) {
			w.call(t, "U7", "DELETE", "/tenants/T7/members/U9", nil).want(t, 204)
			unsure(rw, r)
		})
		w.call(t, "U9", "GET", invoice, nil).want(t, 404)
		if got := n1.got(); len(got) != 1 {
			t.Errorf("asked %d times", len(got))
		}
	})
}

// TestNoLongerAMember: whoever may not ask again does not learn that their write
// came to nothing, because it may not have.
func TestNoLongerAMember(t *testing.T) {
	w, c := fakeWorld(t, nil)
	c.nodes["n1"].next(func(rw http.ResponseWriter, r *http.Request) {
		w.call(t, "U7", "DELETE", "/tenants/T7/members/U9", nil).want(t, 204)
		refuse(raftfsm.ErrUnknown)(rw, r)
	})
	if a := w.call(t, "U9", "POST", "/tenants/T7/invoices", bodyOf("createInvoice")).want(t, 503); a.problem(t) != "outcome-unknown" {
		t.Errorf("answered %s", a.body)
	}
	w.call(t, "U9", "POST", "/tenants/T7/invoices", bodyOf("createInvoice")).want(t, 404)
	if got := c.all(); len(got) != 1 {
		t.Errorf("the cell was asked %d times", len(got))
	}
}

// TestLostNodes: nodes that do not answer are passed over, and a request that may
// have arrived is not called undone.
func TestLostNodes(t *testing.T) {
	w, c := remoteWorld(t)
	n1 := c.nodes["n1"]
	cut := func(rw http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	t.Run("cut off before the answer", func(t *testing.T) {
		n1.next(cut)
		w.call(t, "U7", "POST", "/tenants/T7/invoices", bodyOf("createInvoice")).want(t, 201)
		if got := n1.got(); len(got) < 2 || got[0].header.Get("Idempotency-Key") != got[1].header.Get("Idempotency-Key") {
			t.Errorf("asked %+v", got)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		n1.next(func(rw http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		w.call(t, "U7", "GET", invoice, nil).want(t, 200)
	})
	t.Run("half an answer is none", func(t *testing.T) {
		n1.next(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(strings.Repeat(" ", 1<<20)))
			panic(http.ErrAbortHandler)
		})
		req, err := http.NewRequestWithContext(t.Context(), "GET", w.public+invoice, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+w.tokens["U7"])
		req.Header.Set("X-Request-Id", "half")
		resp, err := w.client.Do(req)
		if err == nil {
			defer resp.Body.Close()
			t.Errorf("the client saw a whole answer of %d bytes", resp.ContentLength)
		}
		w.eventually(t, "the log tells of it", func() error {
			if log := w.log.String(); !strings.Contains(log, `"request_id":"half","method":"GET"`) || !strings.Contains(log, `"reason":"cell-unreachable"`) {
				return errors.New(log)
			}
			return nil
		})
	})
	t.Run("nobody there", func(t *testing.T) {
		w.register(t, c, c.serveRemotely(t, w)) // other ports, known to the directory
		w.call(t, "U7", "GET", invoice, nil).want(t, 200)
	})
}

func TestJudge(t *testing.T) {
	for _, v := range []struct {
		err  *fault.Error
		want verdict
	}{
		{raftfsm.ErrNotLeader, verdict{again: true}}, {raftfsm.ErrUnknown, verdict{again: true}}, {raftfsm.ErrBehind, verdict{again: true}}, {raftfsm.ErrAbsent, verdict{again: true}},
		{raftfsm.ErrBusy, verdict{again: true, few: true}}, {errUnreachable, verdict{again: true}},
		{fault.New(fault.Moved, "placement-changed", ""), verdict{again: true, refresh: true}}, {fault.New(fault.Unavailable, "stale-policy", ""), verdict{again: true, refresh: true}},
		{fault.New(fault.Fenced, "tenant-frozen", ""), verdict{again: true, refresh: true}}, {identity.ErrBadContext, verdict{again: true, refresh: true, few: true}},
		{fault.New(fault.Unavailable, "disk-full", ""), verdict{again: true, few: true}}, {fault.Unknown(), verdict{}}, {fault.As(errors.New("x")), verdict{}},
	} {
		if got := judge(v.err); got != v.want {
			t.Errorf("%s: %+v", v.err.Slug, got)
		}
		// Over the wire it is the same.
		w := &collected{}
		problem.Write(w, requestOf(t), v.err)
		if got := judge(refused(w.status, w.header, w.body.Bytes()).err); v.err.Kind != fault.Internal && got != v.want {
			t.Errorf("%s over the wire: %+v", v.err.Slug, got)
		}
	}
}

func requestOf(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestIdempotencyKeys(t *testing.T) {
	w, c := fakeWorld(t, nil)
	for key, ok := range map[string]bool{"a": true, strings.Repeat("k", 255): true, "with space ~!": true, "": false, strings.Repeat("k", 256): false, "é": false, "a\tb": false} {
		for _, path := range []string{"/tenants/T7/invoices", "/tenants/T7/invites"} {
			name := map[string]string{"/tenants/T7/invoices": "createInvoice", "/tenants/T7/invites": "createInvite"}[path]
			a := w.send(t, request{user: "U7", method: "POST", path: path, body: bodyOf(name), header: http.Header{"Idempotency-Key": {key}}})
			if ok && a.status >= 300 && a.status != 409 || !ok && (a.status != 400 || a.problem(t) != "invalid-idempotency-key") {
				t.Errorf("%q to %s: %d %s", key, path, a.status, a.body)
			}
		}
	}
	a := w.send(t, request{user: "U7", method: "POST", path: "/tenants/T7/invoices", body: bodyOf("createInvoice"), header: http.Header{"Idempotency-Key": {"a", "b"}}})
	a.want(t, 400)
	c.all()
}
