package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The operations of a register: one invoice, of which version and amount are seen.
type (
	registerInput struct {
		write    bool
		expected int64 // version
		amount   int64
	}
	registerOutput struct {
		outcome outcome
		version int64 // of what was read or written, or the current one of a mismatch
		amount  int64
	}
	registerState struct{ version, amount int64 }
	outcome       int
)

const (
	succeeded outcome = iota
	mismatched
	unknown // whether the write was made is not known
)

// registerModel is what an invoice does when one request comes after the other.
func registerModel(initial registerState) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, output any) []any {
			s, in, out := state.(registerState), input.(registerInput), output.(registerOutput)
			if !in.write {
				if out.version == s.version && out.amount == s.amount {
					return []any{s}
				}
				return nil
			}
			next := registerState{in.expected + 1, in.amount}
			fits := s.version == in.expected
			switch out.outcome {
			case succeeded:
				if fits && out.version == next.version {
					return []any{next}
				}
			case mismatched:
				if !fits && out.version == s.version {
					return []any{s}
				}
			case unknown:
				if fits {
					return []any{s, next}
				}
				return []any{s}
			}
			return nil
		},
	}
	return model.ToModel()
}

// register shows that reads and conditional updates of one invoice are
// linearizable while leaders die.
func register(t *testing.T, w *world, owner caller) {
	const (
		callers = 6
		kills   = 2
	)
	tenant := w.newTenantIn(t, owner, "C2")
	customer := newCustomer(t, owner, tenant)
	target := path("tenants", tenant, "invoices", newInvoice(t, owner, tenant, customer))
	initial := registerState{1, 1250}

	begun := time.Now()
	var stop atomic.Bool
	var amounts, answered atomic.Int64
	amounts.Store(1250)
	histories := make([][]porcupine.Operation, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			seen := initial.version
			for n := 0; !stop.Load() && len(histories[i]) < 400; n++ {
				in := registerInput{write: (n+i)%2 == 0, expected: seen}
				if in.write {
					in.amount = amounts.Add(1)
				}
				call := time.Since(begun)
				out, ok := registerCall(t.Context(), owner, target, customer, in)
				if !ok {
					continue // a read without an answer tells nothing
				}
				op := porcupine.Operation{ClientId: i, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(begun))}
				if out.outcome == unknown {
					op.Return = int64(time.Hour) // it may take effect at any time yet
				} else {
					seen = out.version
				}
				histories[i] = append(histories[i], op)
				answered.Add(1)
			}
		})
	}
	for range kills {
		before := answered.Load()
		eventually(t, "the register is in use", func() bool { return answered.Load() > before+40*callers || t.Failed() })
		restarted := w.strike(t, "C2/"+w.awaitCell(t, "C2").leader)
		restarted()
		w.awaitCell(t, "C2")
	}
	stop.Store(true)
	wg.Wait()
	var all []porcupine.Operation
	writes := 0
	for _, h := range histories {
		for _, op := range h {
			if op.Input.(registerInput).write && op.Output.(registerOutput).outcome == succeeded {
				writes++
			}
		}
		all = append(all, h...)
	}
	result := porcupine.CheckOperationsTimeout(registerModel(initial), all, time.Minute)
	t.Logf("%d operations, %d of them successful writes, %d leaders killed: %s", len(all), writes, kills, result)
	if result != porcupine.Ok {
		t.Errorf("the history of %d operations is not linearizable: %s", len(all), result)
	}
	if writes == 0 {
		t.Error("no write was made")
	}
}

// registerCall carries out one operation. ok is false for a read that was not
// answered.
func registerCall(ctx context.Context, c caller, target string, customer int64, in registerInput) (out registerOutput, ok bool) {
	r := request{method: http.MethodGet, path: target}
	if in.write {
		r = request{method: http.MethodPut, path: target, ifMatch: etag(in.expected), body: invoiceBody(customer).with(object{"amountMinor": in.amount})}
	}
	a, err := c.try(ctx, r)
	if err != nil || a.status != http.StatusOK && a.status != http.StatusPreconditionFailed {
		return registerOutput{outcome: unknown}, in.write
	}
	var doc struct {
		Version        int64 `json:"version"`
		CurrentVersion int64 `json:"currentVersion"`
		AmountMinor    int64 `json:"amountMinor"`
	}
	if err := json.Unmarshal(a.body, &doc); err != nil {
		return registerOutput{outcome: unknown}, in.write
	}
	if a.status == http.StatusPreconditionFailed {
		return registerOutput{outcome: mismatched, version: doc.CurrentVersion}, true
	}
	return registerOutput{version: doc.Version, amount: doc.AmountMinor}, true
}
