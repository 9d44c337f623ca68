package target

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"celld/cmd/celldbench/load"
)

// Choice says which tenants requests go to: any of Count from First on; a share of
// Hot goes to the first of them, besides its share of the rest.
type Choice struct {
	First, Count int
	Hot          float64
}

// Classes of requests under a Choice with a hot tenant.
const (
	ToOthers = iota
	ToHot
	Classes
)

// Active is a choice of all active tenants.
func (ts *Tenants) Active(hot float64) Choice { return Choice{Count: ts.shape.Active, Hot: hot} }

func (c Choice) pick(r *rand.Rand) (i, class int) {
	switch i = c.First; {
	case c.Hot > 0 && r.Float64() < c.Hot:
		return i, ToHot
	case c.Count > 1:
		i += r.IntN(c.Count)
	}
	if c.Hot > 0 && i == c.First {
		return i, ToHot
	}
	return i, ToOthers
}

// template is a request with one gap.
type template struct{ head, tail []byte }

func (t *template) fill(buf []byte, n uint64) []byte {
	buf = strconv.AppendUint(append(buf[:0], t.head...), n, 10)
	return append(buf, t.tail...)
}

func (ts *Tenants) get(t *tenant, path string) []byte {
	return fmt.Appendf(nil, "GET /tenants/%s/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", t.id, path, ts.addr, t.token)
}

func (ts *Tenants) worker() (uint32, *rand.Rand) {
	n := ts.workers.Add(1)
	return n, rand.New(rand.NewPCG(uint64(n), math.MaxUint32))
}

// reader makes reads: any invoice of any tenant of its choice.
type reader struct {
	choice    Choice
	templates []template // by tenant, from the choice's first on
	most      []uint64   // invoices likewise
	rand      *rand.Rand
	buf       []byte
}

func (ts *Tenants) reader(c Choice) *reader {
	_, random := ts.worker()
	r := &reader{choice: c, rand: random}
	for i := range c.Count {
		t := &ts.all[c.First+i]
		const gap = "\x00"
		head, tail, _ := bytes.Cut(ts.get(t, "invoices/"+gap), []byte(gap))
		r.templates = append(r.templates, template{head, tail})
		r.most = append(r.most, t.invoices.Load())
	}
	return r
}

// Next implements load.Requests.
func (r *reader) Next() (request []byte, class int) {
	i, class := r.choice.pick(r.rand)
	i -= r.choice.First
	r.buf = r.templates[i].fill(r.buf, 1+r.rand.Uint64N(r.most[i]))
	return r.buf, class
}

// writer makes writes: a new invoice for any tenant of its choice and any of its
// customers, each under a key of its own.
type writer struct {
	choice    Choice
	templates [][]write // by tenant, from the choice's first on, and by customer
	rand      *rand.Rand
	prefix    string
	count     uint64
	buf       []byte
}

// write is a request whose key, at keyAt, is filled in.
type write struct {
	request []byte
	keyAt   int
}

const keyLen = 16 + 8 + 12 // run, worker, count

func (ts *Tenants) writer(c Choice) (*writer, error) {
	n, random := ts.worker()
	w := &writer{choice: c, rand: random, prefix: fmt.Sprintf("%s%08x", ts.run, n)}
	for i := range c.Count {
		var of []write
		for customer := range ts.shape.Customers {
			one, err := ts.write(&ts.all[c.First+i], customer+1)
			if err != nil {
				return nil, err
			}
			of = append(of, one)
		}
		w.templates = append(w.templates, of)
	}
	return w, nil
}

func (ts *Tenants) write(t *tenant, customer int) (write, error) {
	body, err := json.Marshal(invoiceBody(customer))
	if err != nil {
		return write{}, err
	}
	key := bytes.Repeat([]byte{'-'}, keyLen)
	request := fmt.Appendf(nil, "POST /tenants/%s/invoices HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s\r\n\r\n%s",
		t.id, ts.addr, t.token, len(body), key, body)
	return write{request, bytes.Index(request, key)}, nil
}

// Next implements load.Requests.
func (w *writer) Next() (request []byte, class int) {
	i, class := w.choice.pick(w.rand)
	of := w.templates[i-w.choice.First]
	t := of[0]
	if len(of) > 1 {
		t = of[w.rand.IntN(len(of))]
	}
	w.count++
	w.buf = append(w.buf[:0], t.request...)
	key := w.buf[t.keyAt : t.keyAt+keyLen]
	n := copy(key, w.prefix)
	c := w.count
	hex.Encode(key[n:], []byte{byte(c >> 40), byte(c >> 32), byte(c >> 24), byte(c >> 16), byte(c >> 8), byte(c)})
	return w.buf, class
}

// Readers makes n connections that read invoices.
func (ts *Tenants) Readers(n int, c Choice) []load.Caller {
	shared := ts.reader(c) // its templates are never changed
	var all []load.Caller
	for range n {
		one := *shared
		_, one.rand = ts.worker()
		all = append(all, load.NewConn(ts.addr, &one, http.StatusOK))
	}
	return all
}

// Writers makes n connections that write invoices. What they are answered belongs
// into Wrote.
func (ts *Tenants) Writers(n int, c Choice) ([]load.Caller, error) {
	shared, err := ts.writer(c)
	if err != nil {
		return nil, err
	}
	var all []load.Caller
	for range n {
		one := *shared
		var id uint32
		id, one.rand = ts.worker()
		one.prefix = fmt.Sprintf("%s%08x", ts.run, id)
		all = append(all, load.NewConn(ts.addr, &one, http.StatusCreated))
	}
	return all, nil
}

// Listers makes n connections that read one page of a list of the i-th tenant's
// invoices.
func (ts *Tenants) Listers(n, i int, query url.Values) []load.Caller {
	request := load.Same(ts.get(&ts.all[i], "invoices?"+query.Encode()))
	var all []load.Caller
	for range n {
		all = append(all, load.NewConn(ts.addr, request, http.StatusOK))
	}
	return all
}

// Customers makes n connections that read the first page of the i-th tenant's
// customers.
func (ts *Tenants) Customers(n, i int) []load.Caller {
	request := load.Same(ts.get(&ts.all[i], "customers"))
	var all []load.Caller
	for range n {
		all = append(all, load.NewConn(ts.addr, request, http.StatusOK))
	}
	return all
}

// CreatedAt is when an invoice of the i-th tenant was made, as the API says it.
func (ts *Tenants) CreatedAt(ctx context.Context, i int, invoice uint64) (string, error) {
	t := &ts.all[i]
	var body struct{ CreatedAt string }
	err := ts.gateway.As(t.token).Get(ctx, fmt.Sprintf("/tenants/%s/invoices/%d", t.id, invoice), nil, &body)
	return body.CreatedAt, err
}

// sweep reads the first invoice of each active tenant, once: what is read first.
type sweep struct {
	ts   *Tenants
	next *atomic.Int64
}

// Next implements load.Requests.
func (s sweep) Next() (request []byte, class int) {
	i := int(s.next.Add(1)-1) % s.ts.shape.Active
	return s.ts.get(&s.ts.all[i], "invoices/1"), 0
}

// Sweepers makes n connections that together read once from each active tenant, if
// they make as many calls as there are.
func (ts *Tenants) Sweepers(n int) []load.Caller {
	shared := sweep{ts, &atomic.Int64{}}
	var all []load.Caller
	for range n {
		all = append(all, load.NewConn(ts.addr, shared, http.StatusOK))
	}
	return all
}

// Place is how far a walk through a list of a tenant's invoices has come.
type Place struct {
	Filter url.Values // of the list; nil for all invoices
	Cursor string     // to the page behind it; "" at the beginning
	passed uint64
}

// Query is the list's, from the place on.
func (p *Place) Query() url.Values {
	query := url.Values{}
	maps.Copy(query, p.Filter)
	if p.Cursor != "" {
		query.Set("cursor", p.Cursor)
	}
	return query
}

// Walk goes on through the list until it has passed so many invoices, which are not
// all.
func (ts *Tenants) Walk(ctx context.Context, i int, at *Place, to uint64) error {
	t := &ts.all[i]
	c := ts.gateway.As(t.token)
	for at.passed < to {
		var page struct {
			Items      []struct{ InvoiceID uint64 }
			NextCursor string
		}
		query := at.Query()
		query.Set("limit", strconv.FormatUint(min(to-at.passed, 500), 10))
		if err := c.Get(ctx, "/tenants/"+t.id+"/invoices", query, &page); err != nil {
			return err
		}
		if page.NextCursor == "" {
			return fmt.Errorf("tenant %s: the list ended before %d invoices", t.id, to)
		}
		at.Cursor = page.NextCursor
		at.passed += uint64(len(page.Items))
	}
	return nil
}
