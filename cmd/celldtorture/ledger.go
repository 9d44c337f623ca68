package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"celld/cmd/celld/client"
	"celld/store/fault"
)

// ledger is one tenant, its writer, and what was acknowledged to it.
type ledger struct {
	tenant   string
	customer int64
	c        *client.Client
	ids      []int64         // by the number in the reference; read only while the writer is paused
	checked  int             // that many of ids are known to be there
	took     []time.Duration // by each write since reset
}

// writers write into all ledgers until stopped; pause waits until none of them
// has a request whose outcome is open.
type writers struct {
	ledgers []*ledger
	acked   atomic.Int64
	lastAck atomic.Int64 // unix nanoseconds

	mu      sync.RWMutex // read-locked by each writer during a write
	stopped atomic.Bool
	group   *errgroup.Group
	ctx     context.Context
	failed  atomic.Pointer[error]
}

func newLedger(ctx context.Context, w *world, i int) (*ledger, error) {
	l := &ledger{tenant: fmt.Sprintf("X%d", i+1)}
	owner := "U-" + l.tenant
	var user struct{ Token string }
	if err := w.operator.Post(ctx, "/users", map[string]any{"userId": owner, "email": owner + "@torture.example"}, &user); err != nil {
		return nil, err
	}
	err := w.operator.Post(ctx, "/tenants", map[string]any{"tenantId": l.tenant, "name": "Tortured " + l.tenant, "owner": owner, "cell": cell}, nil)
	if err != nil {
		return nil, err
	}
	if l.c, err = client.New(w.p.Credentials().Gateway, user.Token); err != nil {
		return nil, err
	}
	var made struct{ CustomerID int64 }
	if err := l.c.Post(ctx, "/tenants/"+l.tenant+"/customers", map[string]any{"name": "Somebody"}, &made); err != nil {
		return nil, err
	}
	l.customer = made.CustomerID
	return l, nil
}

func startWriters(ctx context.Context, ledgers []*ledger) *writers {
	w := &writers{ledgers: ledgers}
	w.group, w.ctx = errgroup.WithContext(ctx)
	for _, l := range ledgers {
		w.group.Go(func() error {
			for !w.stopped.Load() {
				if err := w.write(l); err != nil {
					err = fmt.Errorf("write into %s: %w", l.tenant, err)
					w.failed.CompareAndSwap(nil, &err)
					return err
				}
			}
			return nil
		})
	}
	return w
}

func (w *writers) write(l *ledger) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n := len(l.ids)
	reference := "n" + strconv.Itoa(n)
	call := client.Call{
		Method: "POST", Path: "/tenants/" + l.tenant + "/invoices", Key: "torture-" + reference,
		Body: map[string]any{"customerId": l.customer, "amountMinor": n + 1, "currency": "EUR", "reference": reference},
	}
	var made struct{ InvoiceID int64 }
	call.Into = &made
	began := time.Now()
	for {
		err := l.c.Do(w.ctx, call)
		if err == nil {
			break
		}
		var refusal *fault.Error
		if w.ctx.Err() != nil || errors.As(err, &refusal) && refusal.Kind != fault.Unavailable {
			return err
		}
	}
	l.took = append(l.took, time.Since(began))
	l.ids = append(l.ids, made.InvoiceID)
	w.acked.Add(1)
	w.lastAck.Store(time.Now().UnixNano())
	return nil
}

// latency is how long writes took.
type latency struct{ median, p95, slowest time.Duration }

func (l latency) String() string {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("p50 %.1f, p95 %.1f, max %.1f ms", ms(l.median), ms(l.p95), ms(l.slowest))
}

// reset forgets how long writes took and says it. The writers are paused.
func (w *writers) reset() latency {
	var all []time.Duration
	for _, l := range w.ledgers {
		all = append(all, l.took...)
		l.took = l.took[:0]
	}
	if len(all) == 0 {
		return latency{}
	}
	slices.Sort(all)
	return latency{all[len(all)/2], all[len(all)*95/100], all[len(all)-1]}
}

// pause waits for the writes under way; resume lets the writers go on.
func (w *writers) pause()  { w.mu.Lock() }
func (w *writers) resume() { w.mu.Unlock() }

func (w *writers) stop() error {
	w.stopped.Store(true)
	err := w.group.Wait()
	for _, l := range w.ledgers {
		l.c.Close()
	}
	return err
}

// broken is why a writer gave up, nil while all write.
func (w *writers) broken() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// check walks the tenant's invoices from the newest back to what was checked
// before, and returns how many there are since. Each must be one that was
// acknowledged, under the id that was told, and none may lack.
func (l *ledger) check(ctx context.Context) (int, error) {
	seen := make(map[int]bool)
	query := url.Values{"sort": {"-invoiceId"}, "limit": {"500"}}
	for {
		var page struct {
			Items []struct {
				InvoiceID   int64
				AmountMinor int64
				Reference   string
			}
			NextCursor string
		}
		if err := l.c.Get(ctx, "/tenants/"+l.tenant+"/invoices", query, &page); err != nil {
			return 0, err
		}
		for _, item := range page.Items {
			n, err := strconv.Atoi(strings.TrimPrefix(item.Reference, "n"))
			switch {
			case err != nil || n < 0 || n >= len(l.ids):
				return 0, fmt.Errorf("%s: invoice %d (%q) was never acknowledged", l.tenant, item.InvoiceID, item.Reference)
			case l.ids[n] != item.InvoiceID || item.AmountMinor != int64(n+1):
				return 0, fmt.Errorf("%s: %s was acknowledged as invoice %d over %d and is there as %d over %d", l.tenant, item.Reference, l.ids[n], n+1, item.InvoiceID, item.AmountMinor)
			case seen[n]:
				return 0, fmt.Errorf("%s: %s is there twice", l.tenant, item.Reference)
			case n < l.checked:
				page.NextCursor = ""
			default:
				seen[n] = true
			}
		}
		if page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	if want := len(l.ids) - l.checked; len(seen) != want {
		return 0, fmt.Errorf("%s: %d invoices were acknowledged since the last check, %d of them are there", l.tenant, want, len(seen))
	}
	l.checked = len(l.ids)
	return len(seen), nil
}
