package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net/url"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"celld/cmd/celld/client"
)

// product is the platform as its clients see it, and the tenants that were made
// on it.
type product struct {
	addr    string // of the gateway's public API
	url     string
	tenants []benchTenant
	sample  []byte // the body of one read
	hot     float64
	run     string        // begins every idempotency key of this run
	workers atomic.Uint32 // told apart in the keys
}

// benchTenant is a tenant with an owner of its own, one customer and some
// invoices, numbered from 1.
type benchTenant struct {
	id, token string
	customer  int64
	invoices  int
	reads     [][]byte // one request for each invoice
	write     []byte   // a request whose key is filled in
	keyAt     int
}

// access is where the platform is and how an operator gets in.
type access struct{ gateway, admin, operatorToken string }

// shape says what to make: how many tenants, over how many cells, with how many
// invoices each.
type shape struct{ tenants, cells, invoices int }

const setupParallel = 16

// newProduct makes the tenants as an operator and their content as their owners.
func newProduct(ctx context.Context, at access, s shape, hot float64) (*product, error) {
	u, err := url.Parse(at.gateway)
	if err != nil {
		return nil, err
	}
	p := &product{addr: u.Host, url: at.gateway, hot: hot, run: rand.Text()[:16], tenants: make([]benchTenant, s.tenants)}
	operator, err := client.New(at.admin, at.operatorToken)
	if err != nil {
		return nil, err
	}
	defer operator.Close()
	cells := []string{"C2", "C5"}[:s.cells]
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(setupParallel)
	for i := range p.tenants {
		g.Go(func() error {
			err := p.make(ctx, operator, i, cells[i%len(cells)], s.invoices)
			if err != nil {
				return fmt.Errorf("make tenant %d: %w", i+1, err)
			}
			return nil
		})
	}
	return p, g.Wait()
}

func (p *product) make(ctx context.Context, operator *client.Client, i int, cell string, invoices int) error {
	t := &p.tenants[i]
	t.id, t.invoices = fmt.Sprintf("B%03d", i+1), invoices
	owner := fmt.Sprintf("U-%s", t.id)
	var user struct{ Token string }
	err := operator.Post(ctx, "/users", map[string]any{"userId": owner, "email": owner + "@bench.example"}, &user)
	if err != nil {
		return err
	}
	t.token = user.Token
	err = operator.Post(ctx, "/tenants", map[string]any{"tenantId": t.id, "name": "Bench " + t.id, "owner": owner, "cell": cell}, nil)
	if err != nil {
		return err
	}
	c, err := client.New(p.url, t.token)
	if err != nil {
		return err
	}
	defer c.Close()
	var made struct{ CustomerID, InvoiceID int64 }
	if err := c.Post(ctx, "/tenants/"+t.id+"/customers", map[string]any{"name": "Customer of " + t.id}, &made); err != nil {
		return err
	}
	t.customer = made.CustomerID
	for range invoices {
		if err := c.Post(ctx, "/tenants/"+t.id+"/invoices", t.invoice(), &made); err != nil {
			return err
		}
	}
	if i == 0 {
		var body json.RawMessage
		if err := c.Get(ctx, fmt.Sprintf("/tenants/%s/invoices/%d", t.id, made.InvoiceID), nil, &body); err != nil {
			return err
		}
		p.sample = body
	}
	return p.layOut(t)
}

// invoice is the one body of all writes.
func (t *benchTenant) invoice() map[string]any {
	return map[string]any{"customerId": t.customer, "amountMinor": 1999, "currency": "USD", "memo": "twelve months of service"}
}

const keyLen = 16 + 8 + 12 // run, worker, count

// layOut prepares a tenant's requests, byte for byte as they go out.
func (p *product) layOut(t *benchTenant) error {
	for i := range t.invoices {
		t.reads = append(t.reads, fmt.Appendf(nil, "GET /tenants/%s/invoices/%d HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n",
			t.id, i+1, p.addr, t.token))
	}
	body, err := json.Marshal(t.invoice())
	if err != nil {
		return err
	}
	key := bytes.Repeat([]byte{'-'}, keyLen)
	t.write = fmt.Appendf(nil, "POST /tenants/%s/invoices HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s\r\n\r\n%s",
		t.id, p.addr, t.token, len(body), key, body)
	t.keyAt = bytes.Index(t.write, key)
	return nil
}

// pick chooses a tenant: the first one with its hot share, else any.
func (p *product) pick(r *mathrand.Rand) *benchTenant {
	if p.hot > 0 && r.Float64() < p.hot {
		return &p.tenants[0]
	}
	return &p.tenants[r.IntN(len(p.tenants))]
}

func (p *product) worker() (uint32, *mathrand.Rand) {
	n := p.workers.Add(1)
	return n, mathrand.New(mathrand.NewPCG(uint64(n), math.MaxUint32))
}

// reader is one connection's reads: any invoice of any tenant.
type reader struct {
	p    *product
	rand *mathrand.Rand
}

func (p *product) reader() *reader {
	_, r := p.worker()
	return &reader{p: p, rand: r}
}

func (r *reader) next() []byte {
	t := r.p.pick(r.rand)
	return t.reads[r.rand.IntN(len(t.reads))]
}

// writer is one connection's writes: a new invoice for any tenant, each under a
// key of its own.
type writer struct {
	p      *product
	rand   *mathrand.Rand
	prefix string
	count  uint64
	buf    []byte
}

func (p *product) writer() *writer {
	n, r := p.worker()
	return &writer{p: p, rand: r, prefix: fmt.Sprintf("%s%08x", p.run, n)}
}

func (w *writer) next() []byte {
	t := w.p.pick(w.rand)
	w.count++
	w.buf = append(w.buf[:0], t.write...)
	key := w.buf[t.keyAt : t.keyAt+keyLen]
	n := copy(key, w.prefix)
	c := w.count
	hex.Encode(key[n:], []byte{byte(c >> 40), byte(c >> 32), byte(c >> 24), byte(c >> 16), byte(c >> 8), byte(c)})
	return w.buf
}

// audit holds what the platform keeps against what it acknowledged: invoices are
// numbered without gaps, so the highest numbers add up to all writes.
func (p *product) audit(ctx context.Context, acknowledged uint64) error {
	want := acknowledged
	var sum atomic.Uint64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(setupParallel)
	for i := range p.tenants {
		t := &p.tenants[i]
		want += uint64(t.invoices)
		g.Go(func() error {
			c, err := client.New(p.url, t.token)
			if err != nil {
				return err
			}
			defer c.Close()
			var list struct{ Items []struct{ InvoiceID uint64 } }
			err = c.Get(ctx, "/tenants/"+t.id+"/invoices", url.Values{"sort": {"-invoiceId"}, "limit": {"1"}}, &list)
			if err == nil && len(list.Items) == 1 {
				sum.Add(list.Items[0].InvoiceID)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("count the invoices: %w", err)
	}
	if got := sum.Load(); got != want {
		return fmt.Errorf("the tenants hold %d invoices, but %d were acknowledged", got, want)
	}
	return nil
}
