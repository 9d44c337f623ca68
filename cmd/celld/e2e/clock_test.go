package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// clock is what the nodes of a platform in this process date by. It shows the
// time, unless it was stopped.
type clock struct{ stopped atomic.Pointer[time.Time] }

func (c *clock) now() time.Time {
	if at := c.stopped.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// pinTime stops the nodes' clock until the function that it returns is called.
// Time never goes back within a tenant, so everything written in it meanwhile
// has one and the same time. The clock stands ten seconds ahead and a context's
// clock may differ by five, so it can stand still for fifteen seconds.
func (w *world) pinTime(t *testing.T, owner caller, tenant string) (release func()) {
	t.Helper()
	at := time.Now().Add(10 * time.Second)
	w.clock.stopped.Store(&at)
	owner.get(t, path("tenants", tenant, "invoices")).want(t, http.StatusOK)
	return func() { w.clock.stopped.Store(nil) }
}
