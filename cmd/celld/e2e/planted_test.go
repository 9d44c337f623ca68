package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"celld/raftfsm/cellfsm"
	"celld/store"
)

// TestFlippedRow changes a row in the file of one replica behind the back of its
// process. An operator's verification finds it, the node fetches the file anew, and
// nobody who works with the tenant or its neighbour gets an error meanwhile.
func TestFlippedRow(t *testing.T) {
	w := start(t, setup{isolate: true})
	owner := w.newUser(t)
	tenant, neighbour := w.newTenantIn(t, owner, "C2"), w.newTenantIn(t, owner, "C2")
	for _, id := range []string{tenant, neighbour} {
		newInvoice(t, owner, id, newCustomer(t, owner, id))
	}
	w.equalReplicas(t, tenant)
	state := w.awaitCell(t, "C2")
	victim := "n1"
	if state.leader == victim {
		victim = "n2"
	}
	uid := w.operator.get(t, path("tenants", tenant)).want(t, http.StatusOK).text(t, "uid")

	var asked, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for _, id := range []string{tenant, neighbour} {
		for _, r := range []request{
			{method: http.MethodGet, path: path("tenants", id, "invoices", 1)},
			{method: http.MethodPost, path: path("tenants", id, "customers"), body: object{"name": "C"}},
		} {
			working.Go(func() {
				for ctx.Err() == nil {
					a, err := owner.try(ctx, r)
					if asked.Add(1); ctx.Err() == nil && (err != nil || a.status >= 300) {
						failed.Add(1)
						t.Errorf("%s %s: %d %s %v", r.method, r.path, a.status, a.body, err)
						return
					}
				}
			})
		}
	}
	w.flip(t, "C2", victim, uid)
	found := w.operator.get(t, path("tenants", tenant, "replicas")).want(t, http.StatusOK)
	doc := found.object(t)
	if outliers, _ := doc["outliers"].([]any); doc["verdict"] != "divergent" || len(outliers) != 1 || outliers[0] != victim {
		t.Errorf("a row is flipped on %s: %s", victim, found.body)
	}
	w.equalReplicas(t, tenant)
	w.equalReplicas(t, neighbour)
	cancel()
	working.Wait()
	t.Logf("%d requests meanwhile, %d failed", asked.Load(), failed.Load())
}

// flip changes a row of a tenant's in one node's file.
func (w *world) flip(t *testing.T, cell, node, uid string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.dir, "cells", cell, node, "tenants", uid, "*", "tenant.db"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the files of %s on %s: %v %v", uid, node, paths, err)
	}
	f, err := store.Open(paths[0], cellfsm.TenantSchema())
	if err != nil {
		t.Fatal(err)
	}
	// The node's transaction is open most of the time, and the next one begins when
	// it ends: a turn between two may take more than one wait of SQLite's.
	for range 10 {
		err = f.Update(func(tx *store.Tx) error {
			return tx.Savepoint(func() error {
				_, err := tx.Exec("UPDATE invoice SET memo = 'flipped' WHERE invoice_id = 1")
				return err
			})
		})
		if err == nil || !strings.Contains(err.Error(), "database is locked") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
