package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// founding shows that a tenant is made once under one key, however often the
// gateways that make it die on the way, and that it works afterwards.
func founding(t *testing.T, w *world) {
	const callers = 4
	owner := w.newUser(t)
	var stop atomic.Bool
	var made atomic.Int64
	founded := make([][]string, callers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for i := range callers {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id, err := w.found(t.Context(), owner, fmt.Sprintf("founding-%d-%d", i, n), i+n)
				if err != nil {
					t.Error(err)
					return
				}
				founded[i] = append(founded[i], id)
				made.Add(1)
			}
		})
	}
	for i := range w.gateways {
		before := made.Load()
		eventually(t, "tenants are founded", func() bool { return made.Load() > before+callers || t.Failed() })
		w.kill(t, fmt.Sprintf("G%d", i+1))
		w.awaitReady(t)
	}
	stop.Store(true)
	wg.Wait()

	var list struct {
		Items []struct {
			TenantID string `json:"tenantId"`
			Role     string `json:"role"`
		} `json:"items"`
	}
	owner.get(t, "/tenants").want(t, http.StatusOK).into(t, &list)
	there := map[string]bool{}
	for _, item := range list.Items {
		if there[item.TenantID] || item.Role != "owner" {
			t.Errorf("the tenant %s is there twice or with the role %q", item.TenantID, item.Role)
		}
		there[item.TenantID] = true
	}
	count := 0
	for _, ids := range founded {
		for _, id := range ids {
			count++
			if !there[id] {
				t.Errorf("the tenant %s was acknowledged and is not there", id)
			}
			newCustomer(t, owner, id)
		}
	}
	if len(there) != count {
		t.Errorf("%d keys made %d tenants", count, len(there))
	}
	t.Logf("%d tenants founded while three gateways were killed", count)
}

// found makes a tenant under one key, asking one gateway after the other until it
// is acknowledged.
func (w *world) found(ctx context.Context, owner caller, key string, first int) (id string, err error) {
	r := request{method: http.MethodPost, path: "/tenants", key: key, body: object{"name": key}}
	for try := first; ; try++ {
		a, err := owner.at(w.gateways[try%len(w.gateways)]).try(ctx, r)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil || a.status == http.StatusServiceUnavailable:
			continue
		case a.status != http.StatusCreated:
			return "", fmt.Errorf("%s: %d %s", key, a.status, a.body)
		}
		var tenant struct {
			TenantID string `json:"tenantId"`
		}
		if err := json.Unmarshal(a.body, &tenant); err != nil {
			return "", fmt.Errorf("%s: %w: %s", key, err, a.body)
		}
		return tenant.TenantID, nil
	}
}
