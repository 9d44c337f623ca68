package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/raftfsm/verify"
	"celld/store/tenant"
)

// fakeNode is a cell node that answers what the test tells it to and keeps what it
// was asked.
type fakeNode struct {
	name     string
	cell     *fakeCell
	mu       sync.Mutex
	requests []seen
	script   []http.HandlerFunc // for the next requests of members; then plain answers
}

// seen is one request of a member's that came to a node.
type seen struct {
	method, path, query, body string
	header                    http.Header
	context                   identity.Context
}

// fakeCell is a cell of fake nodes; the first leads.
type fakeCell struct {
	name     string
	key      tenant.CellKey
	verifier *identity.Verifier
	nodes    map[string]*fakeNode

	mu     sync.Mutex
	leader string
	broken bool                     // provisioning is refused
	marked string                   // the uid that mark "M1" was set for
	finds  map[string]verify.Result // what a node has found at it, where it is not the usual

	out      map[string]bool // nodes that are no members
	catching string          // the member without a vote
	refuses  error           // what a change of members is answered with
}

// answerMark answers as a node does that was asked about a mark.
func (c *fakeCell) answerMark(w http.ResponseWriter, r *http.Request, name, mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, special := c.finds[name]
	if !special {
		found = verify.Result{State: verify.Done, Digest: "d1", Index: 9, Applied: 7, Sequence: 3, Rows: 11}
	}
	if c.marked == "" || mark != "M1" || found.State == "" {
		problem.Write(w, r, verify.ErrNoMark)
		return
	}
	found.Mark, found.Target = mark, c.marked
	_ = writeJSON(w, 200, found)
}

// find sets what a node has found at a mark: the zero result for nothing yet.
func (c *fakeCell) find(name string, r verify.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finds == nil {
		c.finds = make(map[string]verify.Result)
	}
	c.finds[name] = r
}

// set changes what the cell answers.
func (c *fakeCell) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *fakeCell) leads() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

func (c *fakeCell) lead(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = name
}

// members are the cell's members: its nodes, but for those that a test has taken
// out or not yet put in.
func (c *fakeCell) members() []memberStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []memberStatus{}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if !c.out[name] {
			out = append(out, memberStatus{ID: name + "~x", Node: name, Voter: name != c.catching})
		}
	}
	return out
}

// changeMembers adds and removes members as a leader does, at once.
func (n *fakeNode) changeMembers(w http.ResponseWriter, r *http.Request) {
	c := n.cell
	var in newMember
	_ = json.NewDecoder(r.Body).Decode(&in)
	name, removes := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/internal/members/"), "/remove")
	c.mu.Lock()
	refusal := c.refuses
	if refusal == nil && removes {
		c.out[name] = true
	} else if refusal == nil && !in.Check {
		delete(c.out, in.Node)
	}
	c.mu.Unlock()
	if refusal != nil {
		problem.Write(w, r, refusal)
		return
	}
	_ = writeJSON(w, 200, map[string]any{"cell": c.name, "node": n.name, "isLeader": true, "applied": 9, "members": c.members()})
}

func (c *fakeCell) breakProvisioning(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

func newFakeCell(t testing.TB, name string, nodes ...string) *fakeCell {
	t.Helper()
	var keys []identity.Key
	for _, gateway := range []string{"G1", "G2", "G3"} {
		s, err := identity.NewSigner(gateway, signingKey(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, s.Key())
	}
	c := &fakeCell{name: name, key: tenant.CellKey("key-of-" + name), nodes: make(map[string]*fakeNode), leader: nodes[0], out: make(map[string]bool)}
	var err error
	if c.verifier, err = identity.NewVerifier(tenant.CellName(name), c.key, keys, time.Now); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		c.nodes[n] = &fakeNode{name: n, cell: c}
	}
	return c
}

// handlers are the nodes as Config.Local has them.
func (c *fakeCell) handlers() map[string]http.Handler {
	out := make(map[string]http.Handler)
	for name, n := range c.nodes {
		out[c.name+"/"+name] = n
	}
	return out
}

func (c *fakeCell) addresses() map[string]string {
	out := make(map[string]string)
	for name := range c.nodes {
		out[name] = "127.0.0.1:1"
	}
	return out
}

// register makes the cell known to the gateway.
func (w *world) register(t testing.TB, c *fakeCell, addresses map[string]string) {
	t.Helper()
	w.operator(t, "POST", "/cells", map[string]any{"name": c.name, "region": "local", "nodes": addresses}).want(t, 200)
}

// serveRemotely puts the nodes behind mutual TLS and returns their addresses.
func (c *fakeCell) serveRemotely(t testing.TB, w *world) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name, n := range c.nodes {
		l := listen(t)
		out[name] = l.Addr().String()
		mux, err := raftfsm.NewMux(l, issue(t, w.ca, mtls.Node(c.name, name)))
		if err != nil {
			t.Fatal(err)
		}
		s := hop.NewServer(n, slog.New(slog.DiscardHandler))
		inner := mux.Listen(hop.Protocol, func(string) bool { return true })
		var wait sync.WaitGroup
		wait.Go(func() { _ = mux.Serve() })
		wait.Go(func() { _ = s.Serve(inner) })
		t.Cleanup(func() {
			s.Close()
			_ = mux.Close()
			wait.Wait()
		})
	}
	return out
}

// next sets what the node does with the next requests of members.
func (n *fakeNode) next(script ...http.HandlerFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.script = append(n.script, script...)
}

// got returns the requests of members so far, and forgets them.
func (n *fakeNode) got() []seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.requests
	n.requests = nil
	return out
}

// forget drops what is left of the script.
func (n *fakeNode) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.script = nil
}

// ServeHTTP answers as a node would, as far as a gateway can tell.
func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := problem.EnsureRequestID(w.Header(), r.Header)
	r = r.WithContext(problem.ContextWithRequestID(r.Context(), id))
	if r.URL.Path == statusPath {
		_ = writeJSON(w, 200, map[string]any{"cell": n.cell.name, "cellKey": n.cell.key, "node": n.name, "isLeader": n.cell.leads() == n.name, "ready": true, "applied": 7, "term": 2,
			"serverId": n.name + "~x", "members": n.cell.members()})
		return
	}
	if mark, ok := strings.CutPrefix(r.URL.Path, "/internal/marks/"); ok {
		n.cell.answerMark(w, r, n.name, mark)
		return
	}
	who, err := n.cell.verifier.Verify(r.Header.Get(identity.Header))
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	if n.cell.leads() != n.name && r.Header.Get(headerConsistency) == "" {
		notLeader(n.cell.leads())(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/internal/members") && who.Act == identity.ByOperator {
		n.changeMembers(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/internal/") {
		n.cell.mu.Lock()
		broken := n.cell.broken
		if mark := who.Act == identity.ByVerify && r.Method == http.MethodPost && r.URL.Path == "/internal/tenants/"+string(who.UID)+"/marks"; mark {
			n.cell.marked = string(who.UID)
			n.cell.mu.Unlock()
			_ = writeJSON(w, 200, map[string]any{"mark": "M1", "index": 9})
			return
		}
		n.cell.mu.Unlock()
		if broken || who.Act != identity.ByProvision || r.URL.Path != "/internal/tenants/"+string(who.UID) {
			problem.Write(w, r, raftfsm.ErrBusy)
			return
		}
		_ = writeJSON(w, 200, map[string]any{"tenantId": who.Tenant})
		return
	}
	raw, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	n.requests = append(n.requests, seen{r.Method, r.URL.Path, r.URL.RawQuery, string(raw), r.Header.Clone(), who})
	var do http.HandlerFunc
	if len(n.script) > 0 {
		do, n.script = n.script[0], n.script[1:]
	}
	n.mu.Unlock()
	if do == nil {
		do = plainAnswer
	}
	do(w, r)
}

// plainAnswer is a success with headers for clients and others.
func plainAnswer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Celld-Index", "1.7")
	h.Set("ETag", `"5"`)
	h.Set("Celld-Secret", "internal")
	h.Set("Set-Cookie", "a=b")
	status := 200
	if r.Method == http.MethodPost {
		status = 201
	}
	const at = "2026-01-02T03:04:05.000000Z"
	record := map[string]any{"tenantId": strings.Split(r.URL.Path, "/")[2], "version": 5, "createdAt": at, "updatedAt": at}
	if strings.Contains(r.URL.Path, "/customers") {
		record["customerId"], record["name"] = 4, "Ann"
	} else {
		record["invoiceId"], record["customerId"], record["amountMinor"], record["currency"], record["status"] = 17, 4, 100, "USD", "draft"
	}
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "s") {
		record = map[string]any{"items": []any{record}}
	}
	_ = writeJSON(w, status, record)
}

func notLeader(leader string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerLeader, leader)
		problem.Write(w, r, raftfsm.ErrNotLeader)
	}
}

func refuse(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, err) }
}

// fakeWorld is a gateway with users U7, U8, F7, V7 and U9, a cell C2 in the same
// process, and the tenants T7 and T8 in it.
func fakeWorld(t testing.TB, change func(*Config)) (*world, *fakeCell) {
	t.Helper()
	c := newFakeCell(t, "C2", "n1", "n2", "n3")
	w := newWorld(t, func(cfg *Config) {
		cfg.Local = c.handlers()
		if change != nil {
			change(cfg)
		}
	})
	w.register(t, c, c.addresses())
	w.people(t)
	return w, c
}

func (w *world) people(t testing.TB) {
	t.Helper()
	w.newUsers(t, "U7", "U8", "U9", "F7", "V7", "X0")
	for id, owner := range map[string]string{"T7": "U7", "T8": "U8"} {
		w.operator(t, "POST", "/tenants", map[string]any{"tenantId": id, "name": id, "owner": owner}).want(t, 201)
	}
	w.join(t, "T7", "U7", "F7", "finance")
	w.join(t, "T7", "U7", "V7", "viewer")
	w.join(t, "T7", "U7", "U9", "member")
	w.join(t, "T8", "U8", "U9", "member")
}

// all returns what came to any node.
func (c *fakeCell) all() []seen {
	var out []seen
	for _, n := range c.nodes {
		out = append(out, n.got()...)
	}
	return out
}

// without is a header map less what differs from answer to answer.
func without(h http.Header, names ...string) string {
	h = maps.Clone(h)
	for _, name := range append(names, "Date", "X-Request-Id") {
		h.Del(name)
	}
	return fmt.Sprint(h)
}
