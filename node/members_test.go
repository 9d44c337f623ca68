package node_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"celld/node/api"
	"celld/node/nodetest"
	"celld/store/tenant"
)

// load is writers that go on until stop, and what was acknowledged to them.
type load struct {
	c     *nodetest.Cluster
	by    nodetest.Caller
	ended atomic.Bool
	wg    sync.WaitGroup

	mu    sync.Mutex
	acked map[string]bool // references of customers
	more  chan struct{}   // closed and replaced with each
}

func startLoad(c *nodetest.Cluster, by nodetest.Caller, writers int) *load {
	l := &load{c: c, by: by, acked: make(map[string]bool), more: make(chan struct{})}
	for w := range writers {
		l.wg.Go(func() {
			for i := 0; !l.ended.Load(); i++ {
				reference := fmt.Sprintf("w%d-%d", w, i)
				a := c.As(by, http.MethodPost, "/tenants/"+string(by.Tenant.ID)+"/customers", `{"name":"x","reference":"`+reference+`"}`)
				if a.Status != http.StatusCreated {
					return // Do has told the test, or the check of what is missing will
				}
				l.mu.Lock()
				l.acked[reference] = true
				close(l.more)
				l.more = make(chan struct{})
				l.mu.Unlock()
			}
		})
	}
	return l
}

// goesOn waits until n more writes were acknowledged.
func (l *load) goesOn(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	want := len(l.acked) + n
	l.mu.Unlock()
	nodetest.Await(t, "writes to go on", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acked) >= want
	})
}

// stop ends the writers and wants each acknowledged write to be there.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.ended.Store(true)
	l.wg.Wait()
	there := make(map[string]bool)
	path := "/tenants/" + string(l.by.Tenant.ID) + "/customers?limit=500"
	for path != "" {
		var page struct {
			Items []struct {
				Reference string `json:"reference"`
			} `json:"items"`
			Next string `json:"nextCursor"`
		}
		a := l.c.As(l.by, http.MethodGet, path, "")
		if err := a.Into(&page); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
		for _, item := range page.Items {
			there[item.Reference] = true
		}
		path = ""
		if page.Next != "" {
			path = "/tenants/" + string(l.by.Tenant.ID) + "/customers?limit=500&cursor=" + page.Next
		}
	}
	for reference := range l.acked {
		if !there[reference] {
			t.Errorf("the acknowledged write %s is lost", reference)
		}
	}
	t.Logf("%d writes were acknowledged", len(l.acked))
}

// A node is added and the leader removed while writes go on.
func TestReplaceTheLeaderUnderLoad(t *testing.T) {
	c := nodetest.New(t, "C2")
	owner := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: c.Provision("T7")}
	l := startLoad(c, owner, 4)
	l.goesOn(t, 20)

	c.Join("n4")
	if s := c.Status("n4"); s.Ready || s.LastIndex != 0 || len(s.Members) != 0 || !strings.HasPrefix(s.ServerID, "n4~") {
		t.Errorf("a node that nobody added says %+v", s)
	}
	for range 2 { // a repetition finds nothing to do
		if a := c.Add("n4"); a.Status != http.StatusOK {
			t.Fatalf("add n4: %d %s", a.Status, a.Body)
		}
	}
	c.AwaitVoter("n4")
	l.goesOn(t, 20)

	old := c.Leader()
	for range 2 {
		if a := c.Remove(old); a.Status != http.StatusOK {
			t.Fatalf("remove %s: %d %s", old, a.Status, a.Body)
		}
	}
	if gone := c.AwaitRemoved(old); gone.ID != old || gone.Cell != "C2" {
		t.Errorf("%+v", gone)
	}
	l.goesOn(t, 20)
	l.stop(t)
	c.EnsureSame()
	s := c.Status(c.Leader())
	if len(s.Members) != 3 {
		t.Errorf("members %+v", s.Members)
	}
	for _, m := range s.Members {
		if m.Node == old || !m.Voter {
			t.Errorf("members %+v", s.Members)
		}
	}

	// Started once more, on its old data, it says the same again and disturbs nobody.
	term := c.Status(c.Leader()).Term
	c.Start(old)
	c.AwaitRemoved(old)
	if s := c.Status(c.Leader()); s.Term != term {
		t.Errorf("a removed node brought the term from %d to %d", term, s.Term)
	}

	// All others come back, and find each other without settings that name n4.
	for _, name := range c.Running() {
		c.Kill(name)
	}
	for _, m := range s.Members {
		c.Start(m.Node)
	}
	c.EnsureSame()
}

// A node that lost its data comes back under a new server id, in place of who it was.
func TestReplaceAWipedNode(t *testing.T) {
	c := nodetest.New(t, "C2")
	owner := nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: c.Provision("T7")}
	l := startLoad(c, owner, 2)
	wiped := c.Follower()
	c.Kill(wiped)
	c.Wipe(wiped)
	c.Join(wiped)
	id := c.Status(wiped).ServerID
	if a := c.Add(wiped); a.Status != http.StatusConflict || a.Slug() != "node-is-another" || !strings.Contains(string(a.Body), "remove-node C2 "+wiped) {
		t.Errorf("add over the old member: %d %s", a.Status, a.Body)
	}
	if s := c.Status(wiped); s.LastIndex != 0 {
		t.Error("the wiped node got what was meant for who it was")
	}
	if a := c.Remove(wiped); a.Status != http.StatusOK {
		t.Fatalf("remove: %d %s", a.Status, a.Body)
	}
	if a := c.Add(wiped); a.Status != http.StatusOK {
		t.Fatalf("add: %d %s", a.Status, a.Body)
	}
	c.AwaitVoter(wiped)
	l.goesOn(t, 10)
	l.stop(t)
	c.EnsureSame()
	if s := c.Status(wiped); s.ServerID != id || id == wiped {
		t.Errorf("the server id is %q, was %q", s.ServerID, id)
	}
}

// The leader changes between the steps of adding; the next one goes on.
func TestAddAcrossLeaders(t *testing.T) {
	c := nodetest.New(t, "C2")
	c.Provision("T7")
	c.Join("n4")
	c.Stop("n4") // so that it cannot get its vote before the leader is gone
	c.Start("n4")
	m := api.NewMember{Node: "n4", ServerID: c.Node("n4").Group().ID(), Address: c.Address("n4")}
	if a := c.AddAs(m); a.Status != http.StatusOK {
		t.Fatalf("add: %d %s", a.Status, a.Body)
	}
	c.Kill(c.Leader())
	c.AwaitVoter("n4")
	if a := c.AddAs(m); a.Status != http.StatusOK {
		t.Errorf("add again: %d %s", a.Status, a.Body)
	}
}

func TestRefusedChangesOfMembers(t *testing.T) {
	c := nodetest.New(t, "C2")
	tenant7 := c.Provision("T7")
	c.Join("n4")
	n4 := api.NewMember{Node: "n4", ServerID: c.Node("n4").Group().ID(), Address: c.Address("n4")}
	refused := func(what string, a nodetest.Answer, status int, slug, says string) {
		t.Helper()
		if a.Status != status || a.Slug() != slug || !strings.Contains(string(a.Body), says) {
			t.Errorf("%s: %d %s, want %d %s with %q", what, a.Status, a.Body, status, slug, says)
		}
	}
	change := func(of func(*api.NewMember)) nodetest.Answer {
		m := n4
		of(&m)
		return c.AddAs(m)
	}
	refused("an address without a port", change(func(m *api.NewMember) { m.Address = "here" }), http.StatusBadRequest, "invalid-field", "host:port")
	refused("a founding node's id", change(func(m *api.NewMember) { m.ServerID = "n4" }), http.StatusConflict, "node-not-joining", "join")
	refused("nobody there", change(func(m *api.NewMember) { m.Address = "127.0.0.1:1" }), http.StatusConflict, "node-unreachable", "127.0.0.1:1")
	refused("a member's address", change(func(m *api.NewMember) { m.Address = c.Address("n1") }), http.StatusConflict, "address-taken", "n1")
	refused("another server id than the node's", change(func(m *api.NewMember) { m.ServerID = "n4~x" }), http.StatusConflict, "node-is-another", n4.ServerID)

	// Only an operator may, and a gateway must say so.
	token := c.Sign(c.Context(nodetest.Caller{User: "U7", Role: tenant.Owner, Tenant: tenant7}))
	ask := nodetest.Request{Method: http.MethodPost, Path: "/internal/members/n3/remove"}
	refused("a member's context", c.Do(token, ask), http.StatusUnauthorized, "context-invalid", "")
	refused("no context", c.Do("", ask), http.StatusUnauthorized, "context-missing", "")

	if a := c.Remove("n9"); a.Status != http.StatusOK {
		t.Errorf("a node that is no member: %d %s", a.Status, a.Body)
	}

	// With one of three down, another one is needed.
	down := c.Follower()
	c.Stop(down)
	for _, name := range c.Running() {
		if name != "n4" {
			refused("a needed node", c.Remove(name), http.StatusConflict, "quorum-at-risk", down+" does not answer")
		}
	}
	// The one that is down is not.
	if a := c.Remove(down); a.Status != http.StatusOK {
		t.Errorf("the node that is down: %d %s", a.Status, a.Body)
	}
	other := c.Follower()
	if other == "n4" {
		t.Fatal("a node that nobody added is ready")
	}
	if a := c.Remove(other); a.Status != http.StatusOK {
		t.Errorf("one of two: %d %s", a.Status, a.Body)
	}
	c.AwaitRemoved(other)
	refused("the last one", c.Remove(c.Leader()), http.StatusConflict, "last-node", "add another one first")
	if a := c.Add("n4"); a.Status != http.StatusOK {
		t.Errorf("a second node: %d %s", a.Status, a.Body)
	}
	c.AwaitVoter("n4")
	c.EnsureSame()
}
