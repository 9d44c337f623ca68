package gateway

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"celld/gateway/body"
	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/store/fault"
	"celld/store/tenant"
)

// forward passes a request on to the cell that owns the tenant. By now the
// caller's right to the route's action has been checked; the cell checks it again.
func (g *Gateway) forward(x *exchange, r *http.Request) error {
	if err := placed(x.access.Placement); err != nil {
		return err
	}
	in := &hop.Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: make(http.Header, 8)}
	for _, name := range forwarded {
		if values, ok := r.Header[name]; ok {
			in.Header[name] = values
		}
	}
	in.Header[problem.HeaderRequestID] = []string{x.requestID}
	t := &task{inner: in}
	if r.Method == http.MethodGet {
		t.any = len(in.Header[headerMinIndex]) > 0 || wantsStale(r)
		if err := g.reach(x, r); err != nil {
			return err
		}
	} else if err := g.write(x, r, in); err != nil {
		return err
	}
	t.target = func(again bool) (*cell, identity.Context, error) {
		if again {
			if err := g.authorize(x, r); err != nil {
				return nil, identity.Context{}, err
			}
			if err := placed(x.access.Placement); err != nil {
				return nil, identity.Context{}, err
			}
		}
		c, err := g.cells.find(x.access.Placement.Cell, again)
		if err != nil {
			return nil, identity.Context{}, err
		}
		return c, memberContext(x, c), nil
	}
	err := g.ask(r.Context(), t, x)
	x.attempts, x.node = t.attempts, t.node
	if err != nil && x.status != 0 {
		if r.Context().Err() == nil { // else it is the client that went
			x.err = err
		}
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	return err
}

// reach refuses a read that asks for a later place of the tenant's than there is.
// The caller may have seen it before this gateway has, so the directory's leader is
// asked, once.
func (g *Gateway) reach(x *exchange, r *http.Request) error {
	asked := minEpoch(r.Header)
	if asked <= x.access.Placement.Epoch {
		return nil
	}
	if err := g.dir.Refresh(r.Context()); err != nil {
		return err
	}
	if err := g.authorize(x, r); err != nil {
		return err
	}
	if asked > x.access.Placement.Epoch {
		return fault.New(fault.Moved, "placement-changed", "Celld-Min-Index is of a place that the tenant does not have")
	}
	return placed(x.access.Placement)
}

// minEpoch is the epoch of the client's Celld-Min-Index, 0 without one or where it
// is malformed: that is for the cell to refuse.
func minEpoch(h http.Header) tenant.Epoch {
	given := h[headerMinIndex]
	if len(given) != 1 {
		return 0
	}
	left, right, _ := strings.Cut(given[0], ".")
	epoch, bad := strconv.ParseUint(left, 10, 63)
	index, worse := strconv.ParseUint(right, 10, 63)
	if bad != nil || worse != nil || fmt.Sprintf("%d.%d", epoch, index) != given[0] {
		return 0
	}
	return tenant.Epoch(epoch)
}

// write reads the body once, so that it can be sent again, and sees to it that
// there is one idempotency key for all attempts.
func (g *Gateway) write(x *exchange, r *http.Request, in *hop.Request) error {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if in.Body, err = body.Read(x, r, body.Limit); err != nil {
		return err
	}
	if key == "" {
		key = "gateway-" + rand.Text()
	}
	in.Header[headerIdempotency] = []string{key}
	return nil
}

// placed refuses a tenant that no cell serves yet: it is never sent to a default.
func placed(p tenant.Placement) error {
	switch p.State {
	case tenant.Placed, tenant.Moving:
		return nil
	case tenant.Provisioning:
		return errProvisioning
	}
	return fault.Unknown()
}

const maxKey = 255

// idempotencyKey is the client's key, "" without one.
func idempotencyKey(h http.Header) (string, error) {
	given, ok := h[headerIdempotency]
	if !ok {
		return "", nil
	}
	valid := len(given) == 1 && len(given[0]) >= 1 && len(given[0]) <= maxKey
	if valid {
		for i := 0; i < len(given[0]); i++ {
			if c := given[0][i]; c < ' ' || c > '~' {
				valid = false
			}
		}
	}
	if !valid {
		return "", fault.New(fault.Invalid, "invalid-idempotency-key", "an Idempotency-Key has 1 to %d printable ASCII characters and is given once", maxKey)
	}
	return given[0], nil
}
