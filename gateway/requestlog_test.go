package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"celld/store/fault"
)

func TestLinesAreWrittenAtARate(t *testing.T) {
	l := &lines{rate: 2}
	second := time.Unix(1000, 0)
	for i, want := range []struct {
		at      time.Duration
		ok      bool
		leftOut int64
	}{
		{0, true, 0}, {time.Millisecond, true, 0}, {500 * time.Millisecond, false, 0}, {999 * time.Millisecond, false, 0},
		{time.Second, true, 2}, {1001 * time.Millisecond, true, 0}, {1002 * time.Millisecond, false, 0}, {9 * time.Second, true, 1},
	} {
		if leftOut, ok := l.next(second.Add(want.at)); ok != want.ok || leftOut != want.leftOut {
			t.Errorf("request %d: %t, %d left out; want %t, %d", i, ok, leftOut, want.ok, want.leftOut)
		}
	}
}

// TestRequestLog: what went well has no line where none is asked for, what was
// refused has one, and so has what was slow.
func TestRequestLog(t *testing.T) {
	w, _ := fakeWorld(t, func(cfg *Config) { cfg.RequestLog = RequestLog{Rate: -1, Slow: time.Hour} })
	lines := func(id string) int { return strings.Count(w.log.String(), `"request_id":"`+id+`"`) }
	ask := func(id, user, path string, status int) {
		t.Helper()
		w.send(t, request{user: user, method: "GET", path: path, header: map[string][]string{"X-Request-Id": {id}}}).want(t, status)
	}
	ask("well", "U7", "/me", 200)
	ask("refused", "U7", "/tenants/T8", 404)
	w.requests.slow = 0 // before the request, which the server hands to another goroutine
	ask("slow", "U7", "/me", 200)
	for id, want := range map[string]int{"well": 0, "refused": 1, "slow": 1} {
		if got := lines(id); got != want {
			t.Errorf("%s: %d lines, want %d", id, got, want)
		}
	}
}

// TestFloodOfRefusals: whoever is refused over and over fills no log, and takes no
// line from those who are served.
func TestFloodOfRefusals(t *testing.T) {
	now := time.Unix(1000, 0)
	w, _ := fakeWorld(t, nil)
	w.requests.refused.rate = 2
	flood := func(now time.Time) {
		for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusNotFound} {
			for range 25 {
				x := &exchange{requestID: "flood", status: status, err: fault.New(fault.Unavailable, "busy", "")}
				w.Gateway.log(x, httptest.NewRequest(http.MethodGet, "/me", http.NoBody), now, time.Hour)
			}
		}
	}
	flood(now)
	w.Gateway.log(&exchange{requestID: "served", status: http.StatusOK}, httptest.NewRequest(http.MethodGet, "/me", http.NoBody), now, 0)
	w.Gateway.log(&exchange{requestID: "failed", status: http.StatusInternalServerError, err: errors.New("a bug")}, httptest.NewRequest(http.MethodGet, "/me", http.NoBody), now, 0)
	flood(now.Add(time.Second))
	all := w.log.String()
	for id, want := range map[string]int{"flood": 4, "served": 1, "failed": 1} {
		if got := strings.Count(all, `"request_id":"`+id+`"`); got != want {
			t.Errorf("%s: %d lines, want %d", id, got, want)
		}
	}
	if strings.Count(all, `"left_out":98`) != 1 || strings.Count(all, `"left_out"`) != 1 {
		t.Errorf("what was left out is not told, or not once:\n%s", all)
	}
}

func TestHeadOfHealth(t *testing.T) {
	w, _ := fakeWorld(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		for _, base := range []string{w.public, w.admin} {
			a := w.do(t, base, "", request{method: "HEAD", path: path})
			if a.status != 200 || len(a.body) != 0 {
				t.Errorf("HEAD %s: %d %q", path, a.status, a.body)
			}
		}
	}
}
