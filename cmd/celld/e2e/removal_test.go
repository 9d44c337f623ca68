package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestGateways is about three gateways that are cut off, put to sleep and killed.
func TestGateways(t *testing.T) {
	w := start(t, setup{gateways: 3, replicas: 1, isolate: true})
	wires := w.linkGateways(t)
	t.Run("removal", func(t *testing.T) { removal(t, w, wires) })
	t.Run("founding", func(t *testing.T) { founding(t, w) })
}

// removal shows that a member who was removed is admitted by no gateway from the
// moment on at which the removal was answered, even while one of three gateways
// sleeps or has lost touch with the others.
func removal(t *testing.T, w *world, wires wires) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	target := path("tenants", tenant)

	t.Run("all in touch", func(t *testing.T) {
		for i := range w.gateways {
			member := w.newMember(t, owner, tenant, "admin")
			w.removeUnderFire(t, owner.at(w.gateways[i]), member, tenant, -1)
		}
	})
	for asleep, base := range w.gateways {
		t.Run(fmt.Sprintf("G%d asleep", asleep+1), func(t *testing.T) {
			member := w.newMember(t, owner, tenant, "admin")
			for _, base := range w.gateways {
				member.at(base).get(t, target).want(t, http.StatusOK)
			}
			pid := w.pids(t)[fmt.Sprintf("G%d", asleep+1)]
			signal(t, pid, syscall.SIGSTOP)
			awake := sync.OnceFunc(func() { signal(t, pid, syscall.SIGCONT) })
			defer awake()
			eventually(t, "the gateway sleeps", func() bool { return stopped(t, pid) })
			// Requests wait in front of the gateway while the member is removed behind its back.
			answers := make(chan answer, 8)
			for range cap(answers) {
				go func() {
					a, err := member.at(base).try(context.Background(), request{method: http.MethodGet, path: target})
					if err != nil {
						t.Errorf("a request that waited: %v", err)
					}
					answers <- a
				}()
			}
			remove(t, owner.at(w.gateways[(asleep+1)%len(w.gateways)]), member, tenant)
			awake()
			for range cap(answers) {
				if a := <-answers; a.status != http.StatusNotFound && a.status != http.StatusServiceUnavailable {
					t.Errorf("the gateway woke up and answered %d to a member who was removed: %s", a.status, a.body)
				}
			}
			eventually(t, base+" is back", func() bool { return owner.at(base).get(t, target).status == http.StatusOK })
			member.at(base).get(t, target).want(t, http.StatusNotFound)
		})
	}
	for away, base := range w.gateways {
		t.Run(fmt.Sprintf("G%d cut off", away+1), func(t *testing.T) {
			member := w.newMember(t, owner, tenant, "admin")
			for _, base := range w.gateways {
				member.at(base).get(t, target).want(t, http.StatusOK)
			}
			wires.cut(away)
			eventually(t, base+" notices that it is cut off", func() bool { return member.at(base).get(t, target).status == http.StatusServiceUnavailable })
			member.at(base).get(t, target).refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			owner.at(base).get(t, target).refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			owner.at(base).post(t, target+"/customers", object{"name": "Lost"}).refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			// Asking for old answers is no way round it.
			stale := http.Header{"Celld-Consistency": {"stale"}}
			owner.at(base).do(t, request{method: http.MethodGet, path: target + "/customers", header: stale}).refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			owner.at(base).do(t, request{method: http.MethodGet, path: target, header: stale}).refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			owner.at(base).do(t, request{method: http.MethodPost, path: target + "/customers", header: stale, body: object{"name": "Lost"}}).
				refused(t, http.StatusServiceUnavailable, "directory-not-fresh")
			other := owner.at(w.gateways[(away+1)%len(w.gateways)])
			eventually(t, "the two others have a leader", func() bool { return other.get(t, target).status == http.StatusOK })
			w.removeUnderFire(t, other, member, tenant, away)
			wires.heal(away)
			eventually(t, base+" is back", func() bool { return owner.at(base).get(t, target).status == http.StatusOK })
			member.at(base).get(t, target).want(t, http.StatusNotFound)
		})
	}
}

// stopped reports whether every thread of a process has come to its stop: those
// that were running when the signal was sent take a moment.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has %d threads: %v", pid, len(threads), err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return false // it has ended meanwhile
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// removeUnderFire removes a member while it asks every gateway without a pause.
// Whatever it asks after the removal was answered must be refused: with 404, and
// by the gateway that is cut off with 503.
func (w *world) removeUnderFire(t *testing.T, owner, member caller, tenant string, away int) {
	t.Helper()
	var removed, stop atomic.Bool
	var admitted atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for i, base := range w.gateways {
		wg.Go(func() {
			for !stop.Load() {
				after := removed.Load()
				a, err := member.at(base).try(t.Context(), request{method: http.MethodGet, path: path("tenants", tenant)})
				if err != nil {
					t.Errorf("G%d: %v", i+1, err)
					return
				}
				switch {
				case after && a.status == http.StatusServiceUnavailable && i == away:
				case after && a.status != http.StatusNotFound:
					t.Errorf("G%d answered %d to a member who was removed: %s", i+1, a.status, a.body)
					return
				case a.status == http.StatusOK:
					admitted.Add(1)
				}
			}
		})
	}
	eventually(t, "the member is let in at first", func() bool { return admitted.Load() > 10 })
	remove(t, owner, member, tenant)
	removed.Store(true)
	for i, base := range w.gateways {
		want := http.StatusNotFound
		if i == away {
			want = http.StatusServiceUnavailable
		}
		member.at(base).get(t, path("tenants", tenant)).want(t, want)
	}
}

// remove removes a member and returns when that was answered.
func remove(t *testing.T, owner, member caller, tenant string) {
	t.Helper()
	// A new leader may still be on its way: 503 says to ask again under the same key.
	removal := request{method: http.MethodDelete, path: path("tenants", tenant, "members", member.name), key: "remove " + member.name}
	begun := time.Now()
	eventually(t, "the removal is answered", func() bool {
		a := owner.do(t, removal)
		if a.status != http.StatusServiceUnavailable {
			a.want(t, http.StatusNoContent)
		}
		return a.status == http.StatusNoContent
	})
	t.Logf("the removal was answered after %s", time.Since(begun).Round(time.Millisecond))
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Errorf("send %v to the process %d: %v", s, pid, err)
	}
}

// wires are the links between gateways, by who calls whom.
type wires struct{ links map[[2]int]*link }

// cut separates one gateway from all others.
func (x wires) cut(i int) { x.each(i, (*link).cut) }

func (x wires) heal(i int) { x.each(i, (*link).heal) }

func (x wires) each(i int, do func(*link)) {
	for ends, l := range x.links {
		if ends[0] == i || ends[1] == i {
			do(l)
		}
	}
}

// linkGateways puts links between the gateways: each one is started again with
// settings in which its peers' addresses are those of links.
func (w *world) linkGateways(t *testing.T) wires {
	t.Helper()
	x := wires{links: map[[2]int]*link{}}
	for i := range w.gateways {
		name := fmt.Sprintf("G%d", i+1)
		file := filepath.Join(w.dir, "run", name, "config.json")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config := map[string]any{}
		if err := json.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		peers, ok := config["gateways"].(map[string]any)
		if !ok {
			t.Fatalf("%s names no gateways", file)
		}
		for j := range w.gateways {
			peer := fmt.Sprintf("G%d", j+1)
			address, ok := peers[peer].(string)
			if !ok {
				t.Fatalf("%s does not name %s", file, peer)
			}
			if i != j {
				l := newLink(t, address)
				x.links[[2]int{i, j}] = l
				peers[peer] = l.address()
			}
		}
		if raw, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		w.kill(t, name)
		w.awaitReady(t)
		t.Logf("%s was killed and is back after %s", name, time.Since(begun).Round(time.Millisecond))
	}
	return x
}

// awaitReady waits until every gateway says that it is ready.
func (w *world) awaitReady(t testing.TB) {
	t.Helper()
	for _, base := range w.gateways {
		eventually(t, base+" is ready", func() bool {
			a, err := w.nobody().at(base).try(context.Background(), request{method: http.MethodGet, path: "/readyz"})
			return err == nil && a.status == http.StatusOK
		})
	}
}
