package target

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"celld/cmd/celld/client"
	"celld/cmd/celldbench/load"
)

// Tenants are tenants on a platform, each with an owner of its own. The first ones
// are active: they have a customer and invoices, and load goes to them.
type Tenants struct {
	shape   Shape
	addr    string // of the gateway's public API
	gateway *client.Client
	all     []tenant
	run     string        // begins every idempotency key of this run
	workers atomic.Uint32 // told apart in the keys
	sample  []byte        // the body of one read

	acknowledged, unknown atomic.Uint64 // invoices, those that Make made with them
}

// tenant is one of them. Its customers and invoices are numbered from 1.
type tenant struct {
	id, token string
	invoices  atomic.Uint64 // what reads may ask for: so many were made
}

// Shape says what to make.
type Shape struct {
	Tenants   int
	Active    int // how many of them have content
	Cells     int // over how many of the two cells they are spread
	Customers int // of each active tenant
	Invoices  int // likewise
}

// Parallel is how many tenants are made at a time.
const Parallel = 32

// Make makes the tenants through the platform's own APIs: all of them as an
// operator, and then content for the active ones as their owners. say is told from
// time to time how far it is; founded is what making the tenants came to, without
// latencies.
func (t *Platform) Make(ctx context.Context, s Shape, say func(format string, args ...any)) (ts *Tenants, founded *load.Result, err error) {
	c := t.p.Credentials()
	u, err := url.Parse(c.Gateway)
	if err != nil {
		return nil, nil, err
	}
	ts = &Tenants{shape: s, addr: u.Host, run: rand.Text()[:16], all: make([]tenant, s.Tenants)}
	if ts.gateway, err = client.New(c.Gateway, ""); err != nil {
		return nil, nil, err
	}
	operator, err := client.New(c.Admin, c.OperatorToken)
	if err != nil {
		return nil, nil, err
	}
	defer operator.Close()
	end, err := (&meter{t: t}).usage()
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	err = each(ctx, s.Tenants, progress(say, "made %d of %d tenants"), func(ctx context.Context, i int) error {
		return ts.found(ctx, operator, i)
	})
	if err != nil {
		return nil, nil, err
	}
	founded = &load.Result{Calls: uint64(s.Tenants), Elapsed: time.Since(began)}
	if founded.CPU, err = end(); err != nil {
		return nil, nil, err
	}
	err = each(ctx, s.Active, progress(say, "filled %d of %d tenants"), ts.fill)
	if err != nil {
		return nil, nil, err
	}
	return ts, founded, ts.takeSample(ctx)
}

// Close ends idle connections.
func (ts *Tenants) Close() error {
	ts.gateway.Close()
	return nil
}

// each does n things, several at a time.
func each(ctx context.Context, n int, done func(n, of int), do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(Parallel)
	var finished atomic.Int64
	for i := range n {
		g.Go(func() error {
			if err := do(ctx, i); err != nil {
				return fmt.Errorf("tenant %d: %w", i+1, err)
			}
			done(int(finished.Add(1)), n)
			return nil
		})
	}
	return g.Wait()
}

// progress tells every thousandth step.
func progress(say func(format string, args ...any), format string) func(n, of int) {
	return func(n, of int) {
		if n%1000 == 0 && n < of {
			say(format, n, of)
		}
	}
}

// found makes the i-th tenant and its owner.
func (ts *Tenants) found(ctx context.Context, operator *client.Client, i int) error {
	t := &ts.all[i]
	t.id = fmt.Sprintf("B%05d", i+1)
	owner := "U-" + t.id
	var user struct{ Token string }
	if err := operator.Post(ctx, "/users", map[string]any{"userId": owner, "email": owner + "@bench.example"}, &user); err != nil {
		return err
	}
	t.token = user.Token
	cell := []string{"C2", "C5"}[i%ts.shape.Cells]
	return operator.Post(ctx, "/tenants", map[string]any{"tenantId": t.id, "name": "Bench " + t.id, "owner": owner, "cell": cell}, nil)
}

// fill gives the i-th tenant its customers and invoices.
func (ts *Tenants) fill(ctx context.Context, i int) error {
	t := &ts.all[i]
	c := ts.gateway.As(t.token)
	for n := range ts.shape.Customers {
		body := map[string]any{"name": fmt.Sprintf("Customer %d of %s", n+1, t.id)}
		if err := c.Post(ctx, "/tenants/"+t.id+"/customers", body, nil); err != nil {
			return err
		}
	}
	for n := range ts.shape.Invoices {
		if err := c.Post(ctx, "/tenants/"+t.id+"/invoices", invoiceBody(1+n%ts.shape.Customers), nil); err != nil {
			return err
		}
		t.invoices.Add(1)
		ts.acknowledged.Add(1)
	}
	return nil
}

// invoiceBody is the one body of all writes, but for the customer.
func invoiceBody(customer int) map[string]any {
	return map[string]any{"customerId": customer, "amountMinor": 1999, "currency": "USD", "memo": "twelve months of service"}
}

func (ts *Tenants) takeSample(ctx context.Context) error {
	t := &ts.all[0]
	var body json.RawMessage
	if err := ts.gateway.As(t.token).Get(ctx, "/tenants/"+t.id+"/invoices/1", nil, &body); err != nil {
		return err
	}
	ts.sample = body
	return nil
}

// Sample is the body of one read.
func (ts *Tenants) Sample() []byte { return ts.sample }

// Wrote counts writes of a load: those acknowledged, and those of which nothing is
// known.
func (ts *Tenants) Wrote(results ...*load.Result) {
	for _, r := range results {
		ts.acknowledged.Add(r.Good())
		ts.unknown.Add(r.Failed)
	}
}

// maxFillErrors is how many writes of a Grow may fail before it gives up.
const maxFillErrors = 1000

// growthStep is after how many invoices Grow tells how far it is.
const growthStep = 20_000

// Grow writes invoices into the i-th tenant until it has as many as asked for, with
// so many connections, and tells how many it has now: no fewer than before.
func (ts *Tenants) Grow(ctx context.Context, i int, to uint64, connections int, say func(format string, args ...any)) (has uint64, err error) {
	began := time.Now()
	if has, err = ts.highest(ctx, i); err != nil {
		return 0, err
	}
	callers, err := ts.Writers(connections, Choice{First: i, Count: 1})
	if err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(int64(to) - int64(has))
	before := has
	var failed, written atomic.Int64
	g, work := errgroup.WithContext(ctx)
	for _, c := range callers {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				if _, err := c.Call(work); err != nil {
					ts.unknown.Add(1)
					left.Add(1)
					if failed.Add(1) > maxFillErrors || work.Err() != nil {
						return fmt.Errorf("write invoices: %w", err)
					}
					continue
				}
				ts.acknowledged.Add(1)
				if n := written.Add(1); n%growthStep == 0 {
					rate := float64(n) / time.Since(began).Seconds()
					say("%d of %d invoices, %.0f/s, %.0f s to go", before+uint64(n), to, rate, float64(to-before-uint64(n))/rate)
				}
			}
			return nil
		})
	}
	if err := errors.Join(g.Wait(), load.CloseAll(callers)); err != nil {
		return 0, err
	}
	if n := failed.Load(); n > 0 {
		say("%d writes failed and were made again under another key", n)
	}
	has, err = ts.highest(ctx, i)
	ts.all[i].invoices.Store(has)
	return has, err
}

// Audit holds what the platform keeps against what it acknowledged: invoices are
// numbered without gaps, so the highest numbers add up to all writes. It returns
// how many acknowledged writes it found, those of Make included.
func (ts *Tenants) Audit(ctx context.Context) (found uint64, err error) {
	var sum atomic.Uint64
	err = each(ctx, ts.shape.Active, func(int, int) {}, func(ctx context.Context, i int) error {
		highest, err := ts.highest(ctx, i)
		sum.Add(highest)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the invoices: %w", err)
	}
	least := ts.acknowledged.Load()
	if got, most := sum.Load(), least+ts.unknown.Load(); got < least || got > most {
		return 0, fmt.Errorf("the tenants hold %d invoices, but %d were acknowledged and %d more may have been written", got, least, most-least)
	}
	return least, nil
}

// highest is the highest number of the i-th tenant's invoices.
func (ts *Tenants) highest(ctx context.Context, i int) (uint64, error) {
	t := &ts.all[i]
	var list struct{ Items []struct{ InvoiceID uint64 } }
	query := url.Values{"sort": {"-invoiceId"}, "limit": {"1"}}
	if err := ts.gateway.As(t.token).Get(ctx, "/tenants/"+t.id+"/invoices", query, &list); err != nil {
		return 0, err
	}
	if len(list.Items) == 0 {
		return 0, nil
	}
	return list.Items[0].InvoiceID, nil
}

// Invoices is how many invoices the i-th tenant had when it was made or last grown.
func (ts *Tenants) Invoices(i int) uint64 { return ts.all[i].invoices.Load() }
