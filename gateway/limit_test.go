package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"celld/store/fault"
)

func TestGate(t *testing.T) {
	g := newGate[string]("tenant-requests", 2)
	for range 2 {
		if err := g.enter("a"); err != nil {
			t.Fatal(err)
		}
	}
	err := fault.As(g.enter("a"))
	if err == nil || err.Kind != fault.Quota || err.Fields["limit"] != "tenant-requests" || err.Fields["value"] != 2 || err.Retry == 0 {
		t.Fatalf("the third: %v", err)
	}
	if err := g.enter("b"); err != nil {
		t.Fatalf("another key: %v", err)
	}
	g.leave("a")
	if err := g.enter("a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g.leave("a")
	}
	g.leave("b")
	if len(g.count) != 0 {
		t.Errorf("%d keys without requests are kept", len(g.count))
	}
}

// TestShareOfATenant: one user does not take all of a tenant's places.
func TestShareOfATenant(t *testing.T) {
	w, c := fakeWorld(t, func(cfg *Config) { cfg.Limits.TenantRequests = 11 })
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan answer)
	for range 8 {
		c.nodes["n1"].next(func(rw http.ResponseWriter, r *http.Request) {
			inside <- struct{}{}
			<-release
			plainAnswer(rw, r)
		})
		go func() { done <- w.call(t, "V7", "GET", invoice, nil) }()
		<-inside
	}
	a := w.call(t, "V7", "GET", invoice, nil).want(t, 429)
	if !strings.Contains(a.body, `"limit":"tenant-requests-of-user"`) || !strings.Contains(a.body, `"value":8`) {
		t.Errorf("answered %s", a.body)
	}
	w.call(t, "U7", "GET", invoice, nil).want(t, 200)
	close(release)
	for range 8 {
		(<-done).want(t, 200)
	}
	w.call(t, "V7", "GET", invoice, nil).want(t, 200)
	if mostOf(256) != 192 || mostOf(1) != 8 {
		t.Errorf("shares of %d and %d", mostOf(256), mostOf(1))
	}
}

func TestThrottle(t *testing.T) {
	now := time.Unix(1e9, 0)
	th := newThrottle("logins", 3, time.Second, func() time.Time { return now })
	for i := range 5 {
		if err := th.take("a"); (err == nil) != (i < 3) {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	now = now.Add(time.Second)
	if th.take("a") != nil || th.take("a") == nil {
		t.Error("not one each second")
	}
	for i := range 3 * maxBuckets {
		if err := th.take(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(th.young) + len(th.old); n > 2*maxBuckets {
		t.Errorf("%d buckets", n)
	}
}

func TestPeerOf(t *testing.T) {
	for address, want := range map[string]string{"10.1.2.3:99": "10.1.2.3", "[2001:db8:1:2:3:4:5:6]:99": "2001:db8:1:2::", "pipe": "pipe"} {
		if got := peerOf(&http.Request{RemoteAddr: address, Header: http.Header{"X-Forwarded-For": {"1.1.1.1"}}}); got != want {
			t.Errorf("%s is %s", address, got)
		}
	}
}

func TestLimitsAtTheDoor(t *testing.T) {
	w, c := fakeWorld(t, func(cfg *Config) { cfg.Limits.TenantRequests, cfg.Limits.Logins = 1, 2 })
	inside, release := make(chan struct{}), make(chan struct{})
	c.nodes["n1"].next(func(rw http.ResponseWriter, r *http.Request) {
		close(inside)
		<-release
		plainAnswer(rw, r)
	})
	done := make(chan answer)
	go func() { done <- w.call(t, "U7", "GET", invoice, nil) }()
	<-inside
	a := w.call(t, "V7", "GET", invoice, nil).want(t, 429)
	if a.problem(t) != "too-many-requests" || a.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", a.header, a.body)
	}
	w.call(t, "U8", "GET", "/tenants/T8/invoices/17", nil).want(t, 200) // another tenant has its own limit
	close(release)
	(<-done).want(t, 200)
	w.call(t, "V7", "GET", invoice, nil).want(t, 200)

	for i := range 3 {
		a := w.call(t, "", "POST", "/sessions", map[string]any{"email": []string{"U7@example.org", "u7@example.org"}[i%2], "password": "not the one"})
		if want := []int{401, 401, 429}[i]; a.status != want {
			t.Errorf("log-in %d: %d", i, a.status)
		}
	}
	w.call(t, "", "POST", "/sessions", map[string]any{"email": "u8@example.org", "password": "not the one"}).want(t, 401)
}
