package node_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/node"
	"celld/node/api"
	"celld/node/nodetest"
	"celld/raftfsm/mtls"
	"celld/raftfsm/verify"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatusAndInnerPort(t *testing.T) {
	c := nodetest.New(t, "C2")
	leader, follower := c.Leader(), c.Follower()
	tenant7 := c.Provision("T7")

	a, err := c.Ask(leader, "", nodetest.Request{Method: http.MethodGet, Path: "/internal/status"})
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	var s api.Status
	if err := a.Into(&s); err != nil {
		t.Fatal(err)
	}
	if s.Cell != "C2" || s.CellKey != string(c.Key()) || s.Node != leader || s.Leader != leader || !s.IsLeader || !s.Ready ||
		s.Term == 0 || s.Applied == 0 || s.Tenants != 1 || len(s.Members) != 3 || s.Region != "here" {
		t.Errorf("%+v", s)
	}
	c.EnsureSame()
	mark := nodetest.Request{Method: http.MethodPost, Path: "/internal/tenants/" + string(tenant7.UID) + "/marks"}
	vouched := c.Context(nodetest.Caller{User: "U7", Tenant: tenant7})
	vouched.Act, vouched.Role, vouched.Revision = identity.ByVerify, 0, 0
	var marked api.Marked
	if a := c.Do(c.Sign(vouched), mark); a.Status != http.StatusOK || a.Into(&marked) != nil || marked.Mark == "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for name, token := range map[string]string{
		"nobody's": "", "a member's": c.Sign(c.Context(nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: tenant7})),
	} {
		if a := c.Do(token, mark); a.Status != http.StatusUnauthorized {
			t.Errorf("%s mark: %d %s", name, a.Status, a.Body)
		}
	}
	digest := nodetest.Request{Method: http.MethodGet, Path: "/internal/marks/" + marked.Mark}
	found := func(node string) (r verify.Result) {
		nodetest.Await(t, "a digest of "+node, func() bool {
			a, err := c.Ask(node, "", digest)
			return err == nil && a.Status == http.StatusOK && a.Into(&r) == nil && r.State == verify.Done
		})
		return r
	}
	if one, two := found(leader), found(follower); one != two || one.Index != marked.Index || one.Rows == 0 {
		t.Errorf("%+v and %+v", one, two)
	}
	if a, _ := c.Ask(leader, "", nodetest.Request{Method: http.MethodGet, Path: "/internal/marks/x"}); a.Slug() != "no-such-mark" {
		t.Errorf("no mark: %d %s", a.Status, a.Body)
	}

	// A node of the cell looks, but does not act; a node of another cell gets nothing.
	token := c.Sign(c.Context(nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: tenant7}))
	list := nodetest.Request{Method: http.MethodGet, Path: "/tenants/T7/customers"}
	mate, stranger := c.Client(leader, mtls.Node("C2", "n9")), c.Client(leader, mtls.Node("C5", "n1"))
	for _, probe := range []struct {
		client *http.Client
		r      nodetest.Request
		want   int
	}{
		{mate, digest, http.StatusOK},
		{mate, list, http.StatusForbidden},
		{mate, mark, http.StatusForbidden},
		{mate, nodetest.Request{Method: http.MethodPut, Path: "/internal/tenants/" + string(tenant7.UID)}, http.StatusForbidden},
		{stranger, digest, http.StatusForbidden},
		{stranger, list, http.StatusForbidden},
	} {
		a, err := nodetest.Ask(probe.client, c.Address(leader), token, probe.r)
		if err != nil || a.Status != probe.want {
			t.Errorf("%s %s: %d, %v, want %d", probe.r.Method, probe.r.Path, a.Status, err, probe.want)
		}
	}
	// Without a certificate of the cluster nobody gets a word in.
	plain, err := http.Get("https://" + c.Address(leader) + "/internal/status")
	if err == nil {
		plain.Body.Close()
		t.Error("a peer without a certificate was served")
	}
}

// TestHopIsForGateways: the hop's own protocol is spoken with gateways alone, and
// with a node only by the name that was asked for.
func TestHopIsForGateways(t *testing.T) {
	c := nodetest.New(t, "C2")
	leader := c.Leader()
	ask := func(as, expect string) (int, error) {
		config := mtls.ClientConfig(c.Issue(as), expect, hop.Protocol)
		client := hop.NewClient(hop.Config{Dial: func(ctx context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", c.Address(leader))
		}})
		defer client.Close()
		w := &recorder{header: make(http.Header)}
		err := client.Call(t.Context(), &hop.Request{Method: http.MethodGet, Path: "/internal/status", Deadline: time.Now().Add(nodetest.Patience)}, w)
		return w.status, err
	}
	if status, err := ask(mtls.Gateway("G1"), mtls.Node("C2", leader)); err != nil || status != http.StatusOK {
		t.Errorf("a gateway got %d, %v", status, err)
	}
	for as, expect := range map[string]string{
		mtls.Node("C2", "n9"): mtls.Node("C2", leader),
		mtls.Node("C5", "n1"): mtls.Node("C2", leader),
		mtls.Gateway("G1"):    mtls.Node("C2", "n9"),
	} {
		if status, err := ask(as, expect); !errors.Is(err, hop.ErrNotTaken) {
			t.Errorf("%s, which expects %s, got %d, %v", as, expect, status, err)
		}
	}
}

func TestProvisioningNeedsItsOwnContext(t *testing.T) {
	c := nodetest.New(t, "C2")
	t7 := c.Provision("T7")
	other, err := tenant.NewUID(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	put := func(uid tenant.UID) nodetest.Request {
		return nodetest.Request{Method: http.MethodPut, Path: "/internal/tenants/" + string(uid)}
	}
	member := c.Sign(c.Context(nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: t7}))
	good := identity.Context{Cell: "C2", CellKey: c.Key(), Act: identity.ByProvision, Actor: "U1", Tenant: "T7", UID: t7.UID, Epoch: 1}
	for name, probe := range map[string]struct {
		token string
		uid   tenant.UID
		want  int
	}{
		"again":             {c.Sign(good), t7.UID, http.StatusOK},
		"no context":        {"", other, http.StatusUnauthorized},
		"a member's":        {member, t7.UID, http.StatusUnauthorized},
		"for another uid":   {c.Sign(good), other, http.StatusUnauthorized},
		"id that is taken":  {c.Sign(identity.Context{Cell: "C2", CellKey: c.Key(), Act: identity.ByProvision, Actor: "U1", Tenant: "t7", UID: other, Epoch: 1}), other, http.StatusConflict},
		"for another epoch": {c.Sign(identity.Context{Cell: "C2", CellKey: c.Key(), Act: identity.ByProvision, Actor: "U1", Tenant: "T7", UID: t7.UID, Epoch: 2}), t7.UID, http.StatusConflict},
	} {
		if a := c.Do(probe.token, put(probe.uid)); a.Status != probe.want {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	// A provisioning context is no member's.
	if a := c.Do(c.Sign(good), nodetest.Request{Method: http.MethodGet, Path: "/tenants/T7/customers"}); a.Status != http.StatusUnauthorized {
		t.Errorf("read under a provisioning context: %d", a.Status)
	}
}

// TestLeaderDiesBetweenCommitAndAnswer: writers go on under their keys while
// leaders are killed one after the other; every write has one effect.
func TestLeaderDiesBetweenCommitAndAnswer(t *testing.T) {
	c := nodetest.New(t, "C2")
	by := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: c.Provision("T7")}
	c.As(by, http.MethodPost, "/tenants/T7/customers", `{"name":"A"}`)

	var (
		mu   sync.Mutex
		made = make(map[int64]int)
		wg   sync.WaitGroup
		stop = make(chan struct{})
	)
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("w%d-%d", w, i)
				a := c.As(by, http.MethodPost, "/tenants/T7/invoices", `{"customerId":1,"amountMinor":5,"currency":"USD","reference":"`+key+`"}`, api.HeaderKey, key)
				var got struct {
					ID        int64  `json:"invoiceId"`
					Reference string `json:"reference"`
				}
				if a.Status != http.StatusCreated || a.Into(&got) != nil || got.Reference != key {
					t.Errorf("%s: %d %s", key, a.Status, a.Body)
					return
				}
				mu.Lock()
				made[got.ID]++
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(made) }
	for range 3 {
		before := count()
		nodetest.Await(t, "writes", func() bool { return count() > before+20 })
		victim := c.Leader()
		c.Kill(victim)
		before = count()
		nodetest.Await(t, "writes under the next leader", func() bool { return count() > before+20 })
		c.Start(victim)
	}
	close(stop)
	wg.Wait()

	seen := walk(t, c, by, "/tenants/T7/invoices?limit=100")
	if len(seen) != len(made) {
		t.Errorf("%d invoices acknowledged, %d there", len(made), len(seen))
	}
	for id, n := range made {
		if n != 1 || seen[id] != 1 {
			t.Errorf("invoice %d: acknowledged %d times, there %d times", id, n, seen[id])
		}
	}
	c.EnsureSame()
}

// walk follows a list to its end and counts how often each id is met.
func walk(t *testing.T, c *nodetest.Cluster, by nodetest.Caller, path string) map[int64]int {
	t.Helper()
	seen := make(map[int64]int)
	for path != "" {
		a := c.As(by, http.MethodGet, path, "")
		var page struct {
			Items []struct {
				ID int64 `json:"invoiceId"`
			} `json:"items"`
			Next string `json:"nextCursor"`
		}
		if a.Status != http.StatusOK || a.Into(&page) != nil {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		for _, item := range page.Items {
			seen[item.ID]++
		}
		link := a.Header.Get("Link")
		if (link == "") != (page.Next == "") {
			t.Fatalf("link %q, cursor %q", link, page.Next)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
	return seen
}

func TestRestartKeepsEverything(t *testing.T) {
	c := nodetest.New(t, "C2")
	by := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: c.Provision("T7")}
	c.As(by, http.MethodPost, "/tenants/T7/customers", `{"name":"A"}`)
	want := c.As(by, http.MethodPost, "/tenants/T7/invoices", `{"customerId":1,"amountMinor":5,"currency":"JPY"}`, api.HeaderKey, "k")
	key := c.Key()
	names := c.Running()
	for _, name := range names {
		c.Stop(name)
	}
	for _, name := range names {
		c.Start(name)
	}
	if c.Leader(); c.Key() != key {
		t.Error("the cell's key has changed")
	}
	read := c.As(by, http.MethodGet, "/tenants/T7/invoices/1", "")
	again := c.As(by, http.MethodPost, "/tenants/T7/invoices", `{"customerId":1,"amountMinor":5,"currency":"JPY"}`, api.HeaderKey, "k")
	if read.Status != http.StatusOK || string(read.Body) != string(want.Body) || string(again.Body) != string(want.Body) || again.Header.Get(api.HeaderReplayed) != "true" {
		t.Errorf("made %s, read %s, replayed %s", want.Body, read.Body, again.Body)
	}
	c.EnsureSame()
}

// TestOrderedStop: a leader that is stopped hands over, and no request that it
// took is lost.
func TestOrderedStop(t *testing.T) {
	c := nodetest.New(t, "C2")
	by := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: c.Provision("T7")}
	leader := c.Leader()
	handler := c.Node(leader).Handler()
	c.Stop(leader)
	if next := c.Leader(); next == leader {
		t.Error("the stopped node leads")
	}
	a := direct(t, handler, c.Sign(c.Context(by)), http.MethodGet, "/tenants/T7/customers")
	if a.Status != http.StatusServiceUnavailable || a.Slug() != "not-leader" {
		t.Errorf("a stopped node answers %d %s", a.Status, a.Body)
	}
	if a := c.As(by, http.MethodPost, "/tenants/T7/customers", `{"name":"A"}`); a.Status != http.StatusCreated {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	c.Start(leader)
	c.EnsureSame()
}

func direct(t *testing.T, h http.Handler, token, method, path string) nodetest.Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(identity.Header, token)
	w := &recorder{header: make(http.Header)}
	h.ServeHTTP(w, r)
	return nodetest.Answer{Status: w.status, Header: w.header, Body: w.body}
}

type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b...)
	return len(b), nil
}

func TestConfigIsChecked(t *testing.T) {
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pki, err := ca.Issue(mtls.Node("C2", "n1"), time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*node.Config){
		"cell":      func(c *node.Config) { c.Cell = "2" },
		"name":      func(c *node.Config) { c.Name = "" },
		"peers":     func(c *node.Config) { c.Peers = nil },
		"identity":  func(c *node.Config) { c.Name, c.Peers = "n2", map[string]string{"n2": "x:1"} },
		"directory": func(c *node.Config) { c.Dir = "" },
		"wiped":     func(c *node.Config) { c.Bootstrap = false },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := node.Config{
			Cell: "C2", Name: "n1", Dir: filepath.Join(t.TempDir(), "d"), Listener: l, PKI: pki,
			Peers: map[string]string{"n1": l.Addr().String()}, Bootstrap: true,
		}
		change(&cfg)
		if n, err := node.Open(context.Background(), cfg); err == nil {
			t.Errorf("%s: opened", name)
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
			t.Errorf("%s: the listener is still open", name)
		}
	}
}

// TestDataOfAnotherCell: a node that is pointed at another cell's data says so.
func TestDataOfAnotherCell(t *testing.T) {
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	open := func(cell string, first bool) (*node.Node, error) {
		pki, err := ca.Issue(mtls.Node(cell, "n1"), time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return node.Open(context.Background(), node.Config{
			Cell: tenant.CellName(cell), Name: "n1", Dir: dir, Listener: l, PKI: pki, Peers: map[string]string{"n1": l.Addr().String()}, Bootstrap: first,
		})
	}
	n, err := open("C2", true)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Await(t, "the cell's key", func() bool { key, err := n.Space().Key(); return err == nil && key != "" })
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	n, err = open("C5", false)
	if err == nil {
		select {
		case err = <-n.Failed():
		case <-time.After(nodetest.Patience):
		}
		if closing := n.Close(context.Background()); closing != nil {
			t.Error(closing)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "C2") {
		t.Errorf("got %v", err)
	}
}

func TestStatusIsStable(t *testing.T) {
	b, err := json.Marshal(api.Status{})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"absent", "applied", "cell", "cellKey", "diskFree", "diskHangs", "diskReserve", "hasRoom", "isLeader", "lastIndex", "leader", "members", "membersCommitted", "membersIndex",
		"node", "openTenants", "ready", "region", "serverId", "tenants", "term"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
}
