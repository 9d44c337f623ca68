package nodetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"celld/gateway/identity"
	"celld/node/api"
	"celld/store/tenant"
)

// Tenant is a tenant of the cell.
type Tenant struct {
	ID    tenant.ID
	UID   tenant.UID
	Epoch tenant.Epoch
}

// Caller is who asks: a user with a role in a tenant.
type Caller struct {
	User     tenant.UserID
	Role     tenant.Role
	Tenant   Tenant
	Revision tenant.Revision // 0 is 1
}

// Request is what is asked.
type Request struct {
	Method string
	Path   string
	Body   string            // JSON, "" for none
	Header map[string]string // besides the context, and the content type of a body
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Slug is a problem's type.
func (a Answer) Slug() string {
	var p struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(a.Body, &p) != nil {
		return ""
	}
	return p.Type
}

// Into decodes the body.
func (a Answer) Into(v any) error { return json.Unmarshal(a.Body, v) }

// Context is the signed context with which a caller comes.
func (c *Cluster) Context(by Caller) identity.Context {
	c.t.Helper()
	return identity.Context{
		Cell: c.Cell, CellKey: c.Key(), Act: identity.ByMember, Actor: by.User, Tenant: by.Tenant.ID, UID: by.Tenant.UID,
		Role: by.Role, Revision: max(by.Revision, 1), Epoch: by.Tenant.Epoch,
	}
}

// Sign signs a context.
func (c *Cluster) Sign(ctx identity.Context) string {
	c.t.Helper()
	token, err := c.Signer.Sign(ctx)
	c.check(err)
	return token
}

// Key is the cell's key.
func (c *Cluster) Key() tenant.CellKey {
	c.t.Helper()
	for _, name := range c.Running() {
		if key, err := c.Node(name).Space().Key(); err == nil && key != "" {
			return key
		}
	}
	c.t.Fatal("the cell has no key")
	return ""
}

// Provision makes a tenant.
func (c *Cluster) Provision(id tenant.ID) Tenant {
	c.t.Helper()
	uid, err := tenant.NewUID(rand.Reader)
	c.check(err)
	made := Tenant{ID: id, UID: uid, Epoch: 1}
	token := c.Sign(identity.Context{
		Cell: c.Cell, CellKey: c.Key(), Act: identity.ByProvision, Actor: "U1", Tenant: id, UID: uid, Epoch: 1,
	})
	a := c.Do(token, Request{Method: http.MethodPut, Path: "/internal/tenants/" + string(uid)})
	if a.Status != http.StatusOK {
		c.t.Fatalf("provision %s: %d %s", id, a.Status, a.Body)
	}
	return made
}

// Ask asks one node, once. token is the signed context, "" for none.
func (c *Cluster) Ask(name, token string, r Request) (Answer, error) {
	c.mu.Lock()
	client := c.clients[name]
	c.mu.Unlock()
	return Ask(client, c.Address(name), token, r)
}

// Ask asks whatever listens at address, once.
func Ask(client *http.Client, address, token string, r Request) (Answer, error) {
	var content io.Reader
	if r.Body != "" {
		content = strings.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(context.Background(), r.Method, "https://"+address+r.Path, content)
	if err != nil {
		return Answer{}, err
	}
	if r.Body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set(identity.Header, token)
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, got}, err
}

// Do asks as a gateway does: the node that led last, then whom it names, again
// after 503 and broken connections, always with the same headers. Writes need
// an Idempotency-Key for that.
func (c *Cluster) Do(token string, r Request) Answer {
	c.t.Helper()
	return c.do(func() string { return token }, r)
}

// do signs for each attempt anew: what was signed for the first may be too old for
// the last.
func (c *Cluster) do(sign func() string, r Request) Answer {
	c.t.Helper()
	var last Answer
	var lastErr error
	end := time.NewTimer(Patience)
	defer end.Stop()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	c.mu.Lock()
	target := c.leader
	c.mu.Unlock()
	for turn := 0; ; turn++ {
		names := c.Running()
		if target == "" && len(names) > 0 {
			target = names[turn%len(names)]
		}
		if target != "" {
			last, lastErr = c.Ask(target, sign(), r)
			if lastErr == nil && last.Status != http.StatusServiceUnavailable {
				c.mu.Lock()
				c.leader = target
				c.mu.Unlock()
				return last
			}
			target = ""
			if lastErr == nil && last.Slug() == "not-leader" {
				target = last.Header.Get(api.HeaderLeader)
			}
		}
		select {
		case <-pause.C:
		case <-end.C:
			c.t.Errorf("%s %s: no answer in %s: %v %s", r.Method, r.Path, Patience, lastErr, last.Body)
			return last
		}
	}
}

// As asks as Do does, on behalf of a caller. A mutation without an
// Idempotency-Key gets a random one.
func (c *Cluster) As(by Caller, method, path, body string, header ...string) Answer {
	c.t.Helper()
	r := Request{Method: method, Path: path, Body: body, Header: make(map[string]string)}
	if len(header)%2 != 0 {
		c.t.Fatal(errors.New("headers come in pairs"))
	}
	if method == http.MethodPost || method == http.MethodPut {
		r.Header[api.HeaderKey] = rand.Text()
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = header[i+1]
	}
	return c.do(func() string { return c.Sign(c.Context(by)) }, r)
}

// Same reports whether two answers are equal but for the request id.
func Same(a, b Answer) bool {
	strip := func(x Answer) (http.Header, []byte) {
		h := x.Header.Clone()
		id := h.Get("X-Request-Id")
		h.Del("X-Request-Id")
		h.Del("Date")
		return h, bytes.ReplaceAll(x.Body, []byte(id), []byte("ID"))
	}
	ha, ba := strip(a)
	hb, bb := strip(b)
	if a.Status != b.Status || !bytes.Equal(ba, bb) || len(ha) != len(hb) {
		return false
	}
	for name := range ha {
		if strings.Join(ha[name], "\n") != strings.Join(hb[name], "\n") {
			return false
		}
	}
	return true
}

// Compare has the cell's nodes compare their replicas of a tenant, and does not
// wait for what comes of it.
func (c *Cluster) Compare(of Tenant) {
	c.t.Helper()
	token := c.Sign(identity.Context{Cell: c.Cell, CellKey: c.Key(), Act: identity.ByVerify, Actor: "U1", Tenant: of.ID, UID: of.UID, Epoch: of.Epoch})
	a := c.Do(token, Request{Method: http.MethodPost, Path: "/internal/tenants/" + string(of.UID) + "/marks"})
	if a.Status != http.StatusOK {
		c.t.Fatalf("compare %s: %d %s", of.ID, a.Status, a.Body)
	}
}
