package directory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/store/fault"
	"celld/store/tenant"
)

func three(t *testing.T) *cluster { return newCluster(t, "G1", "G2", "G3") }

func TestAWriteThroughAnyGatewayHoldsAtAll(t *testing.T) {
	c := three(t).startAll()
	_, rest := c.leader()
	p := c.people(c.up[rest[0]].Directory, "U1", "U2")
	made := c.tenant(c.up[rest[1]].Directory, "T1", "U1", "U2")
	// What was answered at one gateway holds at each, without anybody asking anew.
	for _, name := range c.names {
		d := c.up[name].Directory
		if who, err := d.AuthenticateStale(c.context(), p.tokens["U2"]); err != nil || who.User != "U2" {
			t.Fatalf("%s: %+v, %v", name, who, err)
		}
		if a, err := d.AccessStale("U2", "T1"); err != nil || a.Role != tenant.Member || a.Placement.State != tenant.Placed {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
	}
	// A refusal keeps its kind on the way.
	_, err := c.up[rest[0]].RemoveMember(c.context(), ByUser("U2"), nil, made.UID, "U1")
	wantSlug(t, err, "forbidden")
	_, _, err = c.up[rest[0]].CreateTenant(c.context(), root, nil, NewTenant{ID: "t1", Name: "x", Owner: "U1"})
	if f := fault.As(err); f.Kind != fault.Conflict || f.Slug != "tenant-id-taken" {
		t.Fatal(err)
	}
	c.ensureSame()
}

// ensureSame compares the content of all gateways that are up.
func (c *cluster) ensureSame() {
	c.t.Helper()
	c.await(c.names...)
	var first [32]byte
	for i, name := range c.names {
		sum, _, err := c.up[name].Digest(c.context())
		must(c.t, err)
		if i == 0 {
			first = sum
		}
		if sum != first {
			c.t.Fatalf("%s differs from %s", name, c.names[0])
		}
	}
}

func TestAGatewayThatIsCutOffStopsAnswering(t *testing.T) {
	c := three(t).startAll()
	leader, rest := c.leader()
	p := c.people(c.up[leader].Directory, "U1")
	c.tenant(c.up[leader].Directory, "T1", "U1")
	lost := c.up[rest[0]].Directory
	c.net.isolate(rest[0])
	c.clock.advance(leaseFor)
	if err := lost.Fresh(); !errors.Is(err, ErrNotFresh) {
		t.Fatal(err)
	}
	_, err := lost.Authenticate(c.context(), p.tokens["U1"])
	wantSlug(t, err, "directory-not-fresh")
	_, err = lost.Access("U1", "T1")
	wantSlug(t, err, "directory-not-fresh")
	_, err = lost.OpenSession(c.context(), "U1@example.org", "password of U1")
	wantSlug(t, err, "directory-not-fresh")
	if _, err = lost.AccessStale("U1", "T1"); err != nil {
		t.Fatal(err)
	}
	if lost.Ready() {
		t.Fatal("it says that it is ready")
	}
	c.await(leader, rest[1])
	c.net.heal()
	c.await(rest[0])
	_, err = lost.Access("U1", "T1")
	must(t, err)
}

// removal removes U2 from a tenant through a gateway and delivers the answer.
func (c *cluster) removal(at string, uid tenant.UID) <-chan error {
	done := make(chan error, 1)
	ctx := c.context()
	go func() {
		_, err := c.up[at].RemoveMember(ctx, ByUser("U1"), nil, uid, "U2")
		done <- err
	}()
	return done
}

// outcome is what done tells, of work that was begun in term. On a busy machine
// another leader may be elected meanwhile, and waits for leases by the clock, which
// stands still unless the test moves it.
func (c *cluster) outcome(done <-chan error, at string, term uint64) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if c.up[at].group.Term() != term {
				c.clock.advance(leaseFor + leaseMargin)
			}
		}
	}
}

func TestARemovalWaitsForTheLeaseOfOneCutOff(t *testing.T) {
	for _, through := range []string{"leader", "follower"} {
		t.Run(through, func(t *testing.T) {
			c := three(t).startAll()
			leader, rest := c.leader()
			c.people(c.up[leader].Directory, "U1", "U2")
			made := c.tenant(c.up[leader].Directory, "T1", "U1", "U2")
			c.await(c.names...)
			lost := c.up[rest[0]].Directory
			c.net.isolate(rest[0])
			at := leader
			if through == "follower" {
				at = rest[1]
			}
			term := c.up[leader].group.Term()
			done := c.removal(at, made.UID)
			c.clock.awaitWaiter()
			// The lease still holds, so the answer is not there yet.
			if _, err := lost.Access("U2", "T1"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				t.Fatalf("the removal was answered (%v) while a gateway admits the user", err)
			default:
			}
			c.clock.advance(leaseFor)
			_, err := lost.Access("U2", "T1")
			wantSlug(t, err, "directory-not-fresh")
			c.clock.advance(leaseMargin)
			must(t, c.outcome(done, leader, term))
			c.await(leader, rest[1])
			for _, name := range []string{leader, rest[1]} {
				_, err := c.up[name].Access("U2", "T1")
				wantSlug(t, err, "not-found")
			}

			// Its lease is over: the next change need not wait for it.
			c.clock.advance(leaseFor)
			ctx, changed := c.context(), make(chan error, 1)
			go func() {
				_, _, err := c.up[leader].SetRole(ctx, ByUser("U1"), nil, made.UID, "U1", tenant.Owner)
				changed <- err
			}()
			must(t, c.outcome(changed, leader, term))
			c.net.heal()
			c.ensureSame()
		})
	}
}

func TestANewLeaderWaitsForLeasesThatItDidNotGive(t *testing.T) {
	c := three(t)
	var quiet atomic.Bool // no gateway asks for a lease
	c.rpc = func(_ string, next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if quiet.Load() && r.URL.Path == pathReadIndex {
				return nil, errors.New("not now")
			}
			return next.RoundTrip(r)
		})
	}
	c.startAll()
	leader, _ := c.leader()
	c.people(c.up[leader].Directory, "U1", "U2")
	made := c.tenant(c.up[leader].Directory, "T1", "U1", "U2")
	c.await(c.names...)
	quiet.Store(true)
	next := leader
	for ctx := c.context(); next == leader && ctx.Err() == nil; next, _ = c.leader() {
		must(t, c.up[leader].group.Transfer(ctx))
	}
	third := ""
	for _, name := range c.names {
		if name != leader && name != next {
			third = name
		}
	}
	lost := c.up[third].Directory
	c.net.isolate(third)
	quiet.Store(false)
	done := c.removal(next, made.UID)
	c.clock.awaitWaiter()
	if _, err := lost.Access("U2", "T1"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the removal was answered (%v) while a gateway admits the user", err)
	default:
	}
	c.clock.advance(leaseFor + leaseMargin)
	must(t, <-done)
	_, err := lost.Access("U2", "T1")
	wantSlug(t, err, "directory-not-fresh")
}

func TestALeaderThatIsCutOffLosesItsLeaseToo(t *testing.T) {
	c := three(t).startAll()
	leader, rest := c.leader()
	c.people(c.up[leader].Directory, "U1", "U2")
	made := c.tenant(c.up[leader].Directory, "T1", "U1", "U2")
	c.await(c.names...)
	old := c.up[leader].Directory
	c.net.isolate(leader)
	next, _ := c.leader()
	done := c.removal(next, made.UID)
	c.clock.awaitWaiter()
	c.clock.advance(leaseFor + leaseMargin)
	must(t, <-done)
	// It may believe that it leads. It can't confirm it.
	_, err := old.Access("U2", "T1")
	wantSlug(t, err, "directory-not-fresh")
	ctx, cancel := context.WithTimeout(c.context(), 100*time.Millisecond)
	defer cancel()
	if _, err := old.SetSuspended(ctx, root, nil, made.UID, true); fault.Of(err) != fault.Unavailable {
		t.Fatal(err)
	}
	c.net.heal()
	c.await(rest...)
	c.ensureSame()
}

func TestAnUnknownOutcomeIsAskedForAgainUnderTheSameKey(t *testing.T) {
	c := three(t)
	drop := &dropper{}
	c.rpc = func(_ string, next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return drop.roundTrip(r, next) })
	}
	c.startAll()
	_, rest := c.leader()
	d := c.up[rest[0]].Directory
	c.people(d, "U1", "U2")
	made := c.tenant(d, "T1", "U1")
	drop.next(1)
	invite, _, err := d.Invite(c.context(), ByUser("U1"), nil, made.UID, NewInvite{Email: "U2@example.org", Role: tenant.Viewer})
	must(t, err)
	open, err := d.Invites(c.context(), made.UID)
	must(t, err)
	if len(open) != 1 || open[0].ID != invite.ID {
		t.Fatalf("%+v, not %+v", open, invite)
	}
	// The secret is that of the attempt that had the effect.
	_, _, err = d.AcceptInvite(c.context(), ByUser("U2"), nil, invite.Token)
	must(t, err)
	drop.next(1)
	_, err = d.OpenSession(c.context(), "U1@example.org", "password of U1")
	must(t, err)
}

// A leader whose network is cut does not hang up: what was sent to it is just
// never answered.
func TestALeaderThatFallsSilentCostsOneAttempt(t *testing.T) {
	c := three(t)
	silent := make(chan bool, 1)
	c.rpc = func(_ string, next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/propose") {
				select {
				case <-silent:
					<-r.Context().Done()
					return nil, r.Context().Err()
				default:
				}
			}
			return next.RoundTrip(r)
		})
	}
	c.startAll()
	_, rest := c.leader()
	silent <- true
	c.people(c.up[rest[0]].Directory, "U1")
	if len(silent) != 0 {
		t.Fatal("nothing was sent to the leader")
	}
}

// dropper loses answers of proposals after the leader has given them.
type dropper struct {
	mu   sync.Mutex
	left int
}

func (d *dropper) next(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

func (d *dropper) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/propose") {
		return resp, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return resp, nil
	}
	d.left--
	resp.Body.Close()
	return nil, errors.New("the answer was lost")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARestartOfAll(t *testing.T) {
	c := three(t).startAll()
	p := c.people(c.up["G1"].Directory, "U1")
	c.tenant(c.up["G2"].Directory, "T1", "U1")
	for _, name := range c.names {
		c.stop(name)
	}
	c.startAll()
	for _, name := range c.names {
		if _, err := c.up[name].Authenticate(c.context(), p.tokens["U1"]); err != nil {
			t.Fatal(name, err)
		}
		if _, err := c.up[name].Access("U1", "T1"); err != nil {
			t.Fatal(name, err)
		}
	}
	c.ensureSame()
}

func TestChangesGoOnWhenTheLeaderStops(t *testing.T) {
	c := three(t).startAll()
	leader, rest := c.leader()
	c.people(c.up[leader].Directory, "U1")
	c.stop(leader)
	c.await(rest...)
	c.clock.advance(leaseFor + leaseMargin) // the lease of the one that stopped
	for i, name := range rest {
		_, _, err := c.up[name].CreateTenant(c.context(), root, nil, NewTenant{ID: tenant.ID(fmt.Sprint("T", i)), Name: "n", Owner: "U1"})
		must(t, err)
	}
	c.start(leader)
	c.ensureSame()
}

func TestInnerCallsAreForMembersAlone(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	address, err := c.net.resolve("G1")
	must(t, err)
	for identity, want := range map[string]int{
		mtls.Gateway("G1"): http.StatusBadRequest, mtls.Gateway("G9"): http.StatusForbidden, mtls.Node("C2", "n1"): http.StatusForbidden,
	} {
		pki, err := c.ca.Issue(identity, time.Now(), time.Hour)
		must(t, err)
		rpc := NewRPC(pki, func(string) (string, error) { return address, nil }, nil)
		for _, path := range []string{pathPropose, pathReadIndex, pathApplied} {
			for _, body := range []string{"", "\xff", strings.Repeat("a", maxRequest+1)} {
				r, err := http.NewRequest(http.MethodPost, "https://G1"+path, strings.NewReader(body))
				must(t, err)
				resp, err := rpc.RoundTrip(r)
				must(t, err)
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Fatalf("%s asked %s with %d bytes: %s", identity, path, len(body), resp.Status)
				}
			}
		}
		rpc.CloseIdleConnections()
	}
	// A peer that is not who it should be is not talked to.
	pki, err := c.ca.Issue(mtls.Gateway("G1"), time.Now(), time.Hour)
	must(t, err)
	rpc := NewRPC(pki, func(string) (string, error) { return address, nil }, nil)
	defer rpc.CloseIdleConnections()
	d := &Directory{cfg: Config{RPC: rpc}}
	if _, err := d.call(c.context(), "G2", pathReadIndex, nil); !errors.Is(err, raftfsm.ErrNotLeader) {
		t.Fatal(err)
	}
}
