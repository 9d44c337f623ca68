package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"celld/gateway/problem"
	"celld/store/fault"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(s.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRetriesUnderOneKey(t *testing.T) {
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("authorization is %q", r.Header.Get("Authorization"))
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"a":1}` {
			t.Errorf("body %q, %v", body, err)
		}
		if len(keys) < 3 {
			problem.Write(w, r, fault.New(fault.Unavailable, "no-leader", "later"))
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]string{"id": "x"}); err != nil {
			t.Error(err)
		}
	})
	var into struct{ ID string }
	if err := c.Post(context.Background(), "/things", map[string]int{"a": 1}, &into); err != nil {
		t.Fatal(err)
	}
	if into.ID != "x" || len(keys) != 3 || keys[0] == "" || keys[0] != keys[2] {
		t.Errorf("got %+v under the keys %q", into, keys)
	}
}

func TestRefusalIsNotRetriedAndKeepsItsKind(t *testing.T) {
	calls := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		problem.Write(w, r, fault.New(fault.Conflict, "taken", "the id is taken"))
	})
	err := c.Post(context.Background(), "/things", nil, nil)
	if calls != 1 || !errors.Is(err, fault.New(fault.Conflict, "taken", "")) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestOnce(t *testing.T) {
	calls := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		problem.Write(w, r, fault.New(fault.Unavailable, "no-leader", "later"))
	})
	if err := c.Once(context.Background(), Call{Method: http.MethodGet, Path: "/"}); fault.Of(err) != fault.Unavailable || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestStopsWhenTheContextEnds(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cancel(why)
		problem.Write(w, r, fault.New(fault.Unavailable, "no-leader", "later"))
	})
	err := c.Get(ctx, "/", nil, nil)
	if err == nil || !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) })
	if err := c.Get(context.Background(), "/", nil, nil); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("got %v", err)
	}
}

func TestNewRefusesWhatIsNoServer(t *testing.T) {
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://x/path"} {
		if _, err := New(base, ""); err == nil {
			t.Errorf("%q passes", base)
		}
	}
}
