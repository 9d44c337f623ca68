package gateway

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/gateway/openapitest"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorToken = "operator-token-of-tests"

// deadline bounds everything that tests wait for.
const deadline = 20 * time.Second

func timing() raftfsm.Timing {
	return raftfsm.Timing{Heartbeat: 300 * time.Millisecond, Election: 300 * time.Millisecond, Lease: 300 * time.Millisecond, Commit: 10 * time.Millisecond}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world is one real gateway with a real directory; its cells are what the test
// makes them.
type world struct {
	*Gateway
	name    string
	ca      *mtls.CA
	public  string
	admin   string
	client  *http.Client
	log     *syncBuffer
	tokens  map[string]string
	signing ed25519.PrivateKey
	checker *openapitest.Checker
}

// syncBuffer is a log that a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newCA(t testing.TB) *mtls.CA {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t testing.TB, ca *mtls.CA, name string) *mtls.PKI {
	t.Helper()
	p, err := ca.Issue(name, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func signingKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
}

// newWorld opens a gateway G1 and waits until it is ready.
func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	return newWorlds(t, 1, change)[0]
}

// newWorlds opens gateways of one directory, G1 and so on, and waits until they
// are ready.
func newWorlds(t testing.TB, n int, change func(*Config)) []*world {
	t.Helper()
	ca := newCA(t)
	group := Group{Bootstrap: true, Timing: timing(), Peers: make(map[string]string)}
	inner := make([]net.Listener, n)
	for i := range n {
		name := fmt.Sprintf("G%d", i+1)
		inner[i] = listen(t)
		group.Peers[name] = inner[i].Addr().String()
		group.Voters = append(group.Voters, raftfsm.Server{ID: name, Address: name})
	}
	tokens := make(map[string]string)
	all := make([]*world, n)
	for i := range n {
		all[i] = openWorld(t, group, &world{ca: ca, name: group.Voters[i].ID, log: &syncBuffer{}, tokens: tokens, signing: signingKey()}, inner[i], change)
	}
	for _, w := range all {
		w.eventually(t, "the gateway "+w.name+" is ready", func() error {
			if a := w.call(t, "", "GET", "/readyz", nil); a.status != 200 {
				return fmt.Errorf("%d %s", a.status, a.body)
			}
			return nil
		})
	}
	return all
}

func openWorld(t testing.TB, group Group, w *world, inner net.Listener, change func(*Config)) *world {
	t.Helper()
	cfg := Config{Name: w.name, Dir: t.TempDir(), Public: listen(t), Admin: listen(t), Inner: inner, PKI: issue(t, w.ca, mtls.Gateway(w.name)),
		OperatorToken: operatorToken, SigningKey: w.signing, Logger: slog.New(slog.NewJSONHandler(w.log, nil)), Group: group,
		Limits: Limits{Attempt: 500 * time.Millisecond, Total: 3 * time.Second}}
	if change != nil {
		change(&cfg)
	}
	w.public, w.admin = "http://"+cfg.Public.Addr().String(), "http://"+cfg.Admin.Addr().String()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	var err error
	if w.checker, err = openapitest.New(OpenAPI()); err != nil {
		t.Fatal(err)
	}
	w.client = &http.Client{Transport: hostOnly{w.public, w.checker.Transport(transport), transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	g, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway = g
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		for _, v := range w.checker.Violations() {
			t.Error("against openapi.yaml: " + v)
		}
		if err := g.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", w.log)
		}
	})
	return w
}

// hostOnly checks the public API's answers alone.
type hostOnly struct {
	base          string
	checked, bare http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h hostOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if "http://"+r.URL.Host == h.base {
		return h.checked.RoundTrip(r)
	}
	return h.bare.RoundTrip(r)
}

// eventually asks again until it is so.
func (w *world) eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil {
			return
		}
		if !pause(ctx, min(attempt, 3)) {
			t.Fatalf("%s: not within %s: %v", what, deadline, err)
		}
	}
}

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem is the type of the problem that was answered.
func (a answer) problem(t testing.TB) string {
	t.Helper()
	var p struct {
		Type string `json:"type"`
	}
	if a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("no problem: %d %v %s", a.status, a.header, a.body)
	}
	a.into(t, &p)
	return p.Type
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// request is a call in all its parts.
type request struct {
	user, method, path string
	body               any // a string goes as it is
	header             http.Header
}

func (w *world) do(t testing.TB, base, token string, r request) answer {
	t.Helper()
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, base+r.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

// call asks the public API as a user, "" for nobody.
func (w *world) call(t testing.TB, user, method, path string, body any) answer {
	t.Helper()
	return w.send(t, request{user: user, method: method, path: path, body: body})
}

func (w *world) send(t testing.TB, r request) answer {
	t.Helper()
	token := w.tokens[r.user]
	if r.user != "" && token == "" {
		token = r.user // a token as it is
	}
	return w.do(t, w.public, token, r)
}

// operator asks the operator API.
func (w *world) operator(t testing.TB, method, path string, body any) answer {
	t.Helper()
	return w.do(t, w.admin, operatorToken, request{method: method, path: path, body: body})
}

// users makes users with tokens.
func (w *world) newUsers(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		var made struct {
			Token string `json:"token"`
		}
		w.operator(t, "POST", "/users", map[string]any{"userId": id, "email": strings.ToLower(id) + "@example.org", "name": id}).want(t, 201).into(t, &made)
		w.tokens[id] = made.Token
	}
}

// join makes a user a member.
func (w *world) join(t testing.TB, in, owner, user, role string) {
	t.Helper()
	var invite struct {
		Token string `json:"token"`
	}
	w.call(t, owner, "POST", "/tenants/"+in+"/invites", map[string]any{"email": strings.ToLower(user) + "@example.org", "role": role}).want(t, 201).into(t, &invite)
	w.call(t, user, "POST", "/invites/accept", map[string]any{"token": invite.Token}).want(t, 200)
}
