package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"celld/cmd/celld/client"
	"celld/cmd/celld/platform/port"
	"celld/store/fault"
)

// start runs a platform within the test's process until the test ends.
func start(t *testing.T, o Options) *Platform {
	t.Helper()
	o.HTTP, o.Admin, o.Log = "127.0.0.1:0", "127.0.0.1:0", testLog(t)
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, p) })
	return p
}

func testLog(t *testing.T) *LogFile {
	t.Helper()
	l, err := OpenLog(filepath.Join(t.TempDir(), "log"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, l) })
	return l
}

func stop(t *testing.T, p *Platform) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func as(t *testing.T, p *Platform, user string) *client.Client {
	t.Helper()
	c, err := p.as(user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type invoice struct {
	InvoiceID  int    `json:"invoiceId"`
	Version    int    `json:"version"`
	CustomerID int    `json:"customerId"`
	Currency   string `json:"currency"`
	Memo       string `json:"memo"`
	Internal   *struct {
		Note string `json:"note"`
	} `json:"internal"`
}

// TestFixture holds what is loaded against what the fixture promises, before and
// after a restart in the middle of the load.
func TestFixture(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Options{Dir: dir, Replicas: 1, Fixture: true})
	checkFixture(t, p)
	first := p.Credentials()
	sentinels := p.Sentinels()
	stop(t, p)

	// As if the load had broken off before its end: every step is repeated.
	p.state.Fixture.Loaded = false
	if err := p.saveState(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Options{Dir: dir, Fixture: true})
	checkFixture(t, again)
	for user, token := range first.Users {
		if again.Credentials().Users[user] != token {
			t.Errorf("the token of %s changed", user)
		}
	}
	if got := again.Credentials().OperatorToken; got != first.OperatorToken {
		t.Error("the operators' token changed")
	}
	if got := again.Sentinels()["T7"]; got != sentinels["T7"] {
		t.Error("the sentinels changed")
	}
}

func checkFixture(t *testing.T, p *Platform) {
	t.Helper()
	sentinels := p.Sentinels()
	for tenant, owner := range map[string]string{"T7": "U7", "T8": "U8"} {
		var got invoice
		if err := as(t, p, owner).Get(t.Context(), "/tenants/"+tenant+"/invoices/17", nil, &got); err != nil {
			t.Fatal(err)
		}
		version := map[string]int{"T7": 5, "T8": 1}[tenant]
		if got.Version != version || got.CustomerID != 4 || got.Currency != "USD" || got.Memo != sentinels[tenant].Memo ||
			got.Internal == nil || got.Internal.Note != sentinels[tenant].Note {
			t.Errorf("invoice 17 of %s is %+v", tenant, got)
		}
		var placed struct {
			Cell string `json:"cell"`
		}
		if err := p.admin.Get(t.Context(), "/tenants/"+tenant, nil, &placed); err != nil || placed.Cell != "C2" {
			t.Errorf("%s lies on %q, %v", tenant, placed.Cell, err)
		}
	}
	for user, want := range map[string]map[string]string{
		"U7": {"T7": "owner"}, "U8": {"T8": "owner"}, "U9": {"T7": "member", "T8": "member"},
		"F7": {"T7": "finance"}, "V7": {"T7": "viewer"}, "X0": {},
	} {
		var me struct {
			Memberships []struct {
				Tenant string `json:"tenantId"`
				Role   string `json:"role"`
			} `json:"memberships"`
		}
		if err := as(t, p, user).Get(t.Context(), "/me", nil, &me); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, m := range me.Memberships {
			got[m.Tenant] = m.Role
		}
		a, _ := json.Marshal(got)
		if b, _ := json.Marshal(want); string(a) != string(b) {
			t.Errorf("%s is %s, want %s", user, a, b)
		}
	}
}

// TestCredentialsComeBeforeReadiness looks at the file in the very moment in
// which a gateway says that it is ready.
func TestCredentialsComeBeforeReadiness(t *testing.T) {
	p := start(t, Options{Dir: t.TempDir(), Replicas: 1, Gateways: 3})
	info, err := os.Stat(CredentialsPath(p.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the credentials have mode %v", info.Mode())
	}
	var c Credentials
	if _, err := readJSON(CredentialsPath(p.Dir()), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Gateways) != 3 || c.Gateway != c.Gateways[0] || c.Users["U1"] == "" || c.OperatorToken == "" {
		t.Errorf("credentials are %+v", c)
	}
	for _, g := range c.Gateways {
		u, err := client.New(g, c.Users["U1"])
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Get(t.Context(), "/tenants/T1", nil, nil); err != nil {
			t.Errorf("%s: %v", g, err)
		}
		u.Close()
	}
	// Without its gate, a gateway that is otherwise well is not ready.
	if err := os.Remove(p.plan.readyFile()); err != nil {
		t.Fatal(err)
	}
	if err := probe(t.Context(), c.Gateway+"/readyz"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without the gate: %v", err)
	}
}

// TestMemberStopsAndStartsWithinTheProcess takes a node away and a gateway, and
// brings them back.
func TestMemberStopsAndStartsWithinTheProcess(t *testing.T) {
	p := start(t, Options{Dir: t.TempDir()})
	u := as(t, p, "U1")
	write := func() {
		t.Helper()
		if err := u.Post(t.Context(), "/tenants/T1/customers", map[string]any{"name": "Ada"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for _, name := range []string{"C2/n1", "C2/n2", "C5/n1", "C5/n2"} {
		m := p.Member(name)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatalf("stop %s: %v", name, err)
		}
		write()
		if err := m.Start(t.Context()); err != nil {
			t.Fatalf("start %s: %v", name, err)
		}
		cell, _, _ := strings.Cut(name, "/")
		if err := p.await(t.Context(), name, func(ctx context.Context) error { return p.led(ctx, cell) }); err != nil {
			t.Fatal(err)
		}
	}
	g := p.Member("G1")
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := probe(t.Context(), p.Credentials().Gateway+"/healthz"); err == nil {
		t.Error("a stopped gateway answers")
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	write()
	if p.Member("C2/n9") != nil {
		t.Error("there is a member that nobody made")
	}
}

// TestDamagedMembers starts a formed platform with members whose past is gone:
// with a majority it says which and goes on, without one it does not start.
func TestDamagedMembers(t *testing.T) {
	dir := t.TempDir()
	stop(t, start(t, Options{Dir: dir, Gateways: 3}))
	for _, lost := range []string{"cells/C2/n2/raft", "gateways/G1/raft"} {
		if err := os.RemoveAll(filepath.Join(dir, lost)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var said []string
	p := start(t, Options{Dir: dir, Progress: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}})
	mu.Lock()
	all := strings.Join(said, "\n")
	mu.Unlock()
	for name, folder := range map[string]string{"C2/n2": "cells/C2/n2", "G1": "gateways/G1"} {
		if strings.Count(all, name+" is down: ") != 1 || !strings.Contains(all, "holds no log") || !strings.Contains(all, "in "+filepath.Join(dir, folder)+" is missing") {
			t.Errorf("about %s it said:\n%s", name, all)
		}
	}
	c := p.Credentials()
	if c.Gateway != c.Gateways[1] {
		t.Errorf("people are sent to %s, of %s", c.Gateway, c.Gateways)
	}
	if err := probe(t.Context(), c.Gateway+"/readyz"); err != nil {
		t.Error(err)
	}
	if err := as(t, p, "U1").Post(t.Context(), "/tenants/T1/customers", map[string]any{"name": "Ada"}, nil); err != nil {
		t.Error(err)
	}
	stop(t, p)

	if err := os.RemoveAll(filepath.Join(dir, "cells/C2/n3/raft")); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: testLog(t)})
	if err == nil || !strings.Contains(err.Error(), "too few of cell C2 run") || !strings.Contains(err.Error(), "C2/n3: ") {
		t.Errorf("without a majority: %v", err)
	}
}

// TestOutagesAreToldOnce: once for each reason, and an index makes no other one.
func TestOutagesAreToldOnce(t *testing.T) {
	told := 0
	p := &Platform{state: state{Formed: true}, ends: make(chan error, 1), options: Options{Progress: func(string) { told++ }}}
	for _, name := range []string{"C2/n1", "C2/n2", "C2/n3"} {
		p.nodes = append(p.nodes, &Member{name: name})
	}
	for i, want := range []int{1, 1, 2, 2} {
		p.ended("C2/n1", fmt.Errorf("%s, entry %d", []string{"damaged", "lost"}[i/2], i))
		if told != want {
			t.Errorf("after %d outages it has told %d", i+1, told)
		}
	}
	if len(p.ends) > 0 {
		t.Error("one of three ends the start")
	}
	p.ended("C2/n2", errors.New("lost"))
	if len(p.ends) != 1 {
		t.Error("two of three do not end the start")
	}
}

func TestStartRefusesWhatItCannotDo(t *testing.T) {
	dir := t.TempDir()
	taken, err := port.Reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := taken.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		closed(t, l)
		if err := taken.Release(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		want   string
		change func(*Options)
	}{
		{"--replicas", func(o *Options) { o.Replicas = 9 }},
		{"--gateways", func(o *Options) { o.Gateways = -1 }},
		{"another address with --http", func(o *Options) { o.HTTP = taken.Addr() }},
		{"another address with --admin", func(o *Options) { o.Admin = taken.Addr() }},
		{"--http :8080 and --admin 127.0.0.1:8080", func(o *Options) { o.HTTP, o.Admin = ":8080", "127.0.0.1:8080" }},
		{"host:port", func(o *Options) { o.HTTP = "8080" }},
		{"newer celld", func(o *Options) {
			if err := writeJSON(statePath(dir), state{Version: 99}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		o := Options{Dir: dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: testLog(t)}
		c.change(&o)
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
}

// TestCellOfAnotherPlatform: a cell that the directory knows under another key is
// refused at once, and the error names the folders.
func TestCellOfAnotherPlatform(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		stop(t, start(t, Options{Dir: d, Replicas: 1}))
	}
	cell := filepath.Join(dir, "cells", "C2")
	if err := os.RemoveAll(cell); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, "cells", "C2"), cell); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Start(ctx, Options{Dir: dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: testLog(t)})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "cell-key-changed") || !strings.Contains(err.Error(), cell) {
		t.Errorf("got %v", err)
	}
}

// TestStartThatIsCalledOff leaves nothing behind that keeps the next start from
// succeeding.
func TestStartThatIsCalledOff(t *testing.T) {
	dir := t.TempDir()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Start(ctx, Options{Dir: dir, Replicas: 1, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: testLog(t),
		Progress: func(text string) {
			if strings.HasPrefix(text, "waiting") {
				cancel(enough)
			}
		}})
	if !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	p := start(t, Options{Dir: dir})
	if err := as(t, p, "U1").Get(t.Context(), "/me", nil, nil); err != nil {
		t.Error(err)
	}
}

// TestLostTokenIsReplaced starts on a folder whose user exists while nobody wrote
// the token down.
func TestLostTokenIsReplaced(t *testing.T) {
	p := start(t, Options{Dir: t.TempDir(), Replicas: 1})
	old := p.credentials.Users["U1"]
	p.credentials.Users = map[string]string{}
	if err := p.ensureUser(t.Context(), "U1", "u1@example.com", "First user"); err != nil {
		t.Fatal(err)
	}
	if p.credentials.Users["U1"] == old {
		t.Error("it is the old token")
	}
	if err := as(t, p, "U1").Get(t.Context(), "/me", nil, nil); err != nil {
		t.Error(err)
	}
	body := map[string]any{"tenantId": "T2", "name": "Two", "owner": "U1"}
	if err := p.admin.Post(t.Context(), "/tenants", body, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.ensureTenant(t.Context(), "T2", "Two", "U1", ""); err != nil {
		t.Errorf("a tenant that is there already: %v", err)
	}
	nobody, err := client.New(p.Credentials().Gateway, "wrong")
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if err := nobody.Once(t.Context(), client.Call{Method: http.MethodGet, Path: "/me"}); fault.Of(err) != fault.Unauthenticated {
		t.Errorf("got %v", err)
	}
}
