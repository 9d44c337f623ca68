package directory

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestSessions(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1")
	ctx := c.context()

	for _, bad := range [][2]string{{"u1@example.org", "wrong"}, {"nobody@example.org", "password of U1"}, {"u1@example.org", ""}, {"", ""}} {
		_, err := d.OpenSession(ctx, bad[0], bad[1])
		wantSlug(t, err, "unauthenticated")
	}
	s, err := d.OpenSession(ctx, "u1@EXAMPLE.org", "password of U1")
	must(t, err)
	if want := c.clock.Now().Add(12 * time.Hour).UTC(); !s.ExpiresAt.Equal(want) || s.User != "U1" {
		t.Fatalf("%+v", s)
	}
	who, err := d.Authenticate(ctx, s.Token)
	must(t, err)
	if who.User != "U1" || who.Kind != LoginSession || who.ID != s.ID || !who.ExpiresAt.Equal(s.ExpiresAt) {
		t.Fatalf("%+v", who)
	}
	hits := testutil.ToFloat64(d.metrics.hits)
	_, err = d.Authenticate(ctx, s.Token)
	must(t, err)
	if testutil.ToFloat64(d.metrics.hits) != hits+1 {
		t.Fatal("the second time it was read from the file again")
	}
	_, err = d.Authenticate(ctx, s.Token[:len(s.Token)-1]+"A")
	wantSlug(t, err, "unauthenticated")

	// Expired to the microsecond, remembered or not.
	c.clock.advance(12*time.Hour - time.Microsecond)
	c.await("G1")
	_, err = d.Authenticate(ctx, s.Token)
	must(t, err)
	c.clock.advance(time.Microsecond)
	_, err = d.Authenticate(ctx, s.Token)
	wantSlug(t, err, "unauthenticated")
}

func TestARevokedSessionStaysOutWhateverFillsRace(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1")
	ctx := c.context()
	s, err := d.OpenSession(ctx, "U1@example.org", "password of U1")
	must(t, err)
	who, err := d.Authenticate(ctx, s.Token)
	must(t, err)
	kind, hash, _ := parseSecret(s.Token)
	racing, err := d.readCredential(kind, hash) // a fill that has read
	must(t, err)
	must(t, d.CloseSession(ctx, who))
	d.credentials.Set(hash, racing) // and stores only now
	_, err = d.Authenticate(ctx, s.Token)
	wantSlug(t, err, "unauthenticated")
	must(t, d.CloseSession(ctx, who)) // closed is closed
	who.Kind = APIToken
	wantSlug(t, d.CloseSession(ctx, who), "not-a-session")
}

func TestARevokedTokenStaysOutUnderLoad(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1")
	ctx := c.context()
	for range 8 {
		made, _, err := d.CreateToken(ctx, ByUser("U1"), nil, "U1", "short-lived")
		must(t, err)
		stop := make(chan struct{})
		var hammer sync.WaitGroup
		for range 4 {
			hammer.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = d.AuthenticateStale(ctx, made.Secret) // fills, and fills again
					}
				}
			})
		}
		_, err = d.RevokeToken(ctx, ByUser("U1"), nil, "U1", made.ID)
		must(t, err)
		for range 100 {
			if _, err := d.AuthenticateStale(ctx, made.Secret); !errors.Is(err, ErrUnauthenticated) {
				t.Fatal("a revoked token was let in")
			}
		}
		close(stop)
		hammer.Wait()
	}
}

func TestTokens(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	p := c.people(d, "U1", "U2")
	ctx := c.context()
	hash, err := raftfsm.HashOf("body")
	must(t, err)
	key := &raftfsm.Key{Operation: "createToken", Key: "k", Hash: hash}
	made, replayed, err := d.CreateToken(ctx, ByUser("U1"), key, "U1", "ci")
	must(t, err)
	if replayed || made.Secret == "" {
		t.Fatalf("%+v %v", made, replayed)
	}
	again, replayed, err := d.CreateToken(ctx, ByUser("U1"), key, "U1", "ci")
	must(t, err)
	if !replayed || again.ID != made.ID || again.Secret != "" {
		t.Fatalf("%+v %v", again, replayed)
	}
	key.Hash[0]++
	_, _, err = d.CreateToken(ctx, ByUser("U1"), key, "U1", "ci")
	wantSlug(t, err, "idempotency-key-reused")

	_, err = d.Authenticate(ctx, made.Secret)
	must(t, err)
	_, err = d.RevokeToken(ctx, ByUser("U2"), nil, "U1", made.ID)
	wantSlug(t, err, "not-found")
	_, err = d.RevokeToken(ctx, ByUser("U1"), nil, "U1", made.ID)
	must(t, err)
	_, err = d.Authenticate(ctx, made.Secret)
	wantSlug(t, err, "unauthenticated")
	list, err := d.Tokens(ctx, "U1")
	must(t, err)
	if len(list) != 1 || list[0].Name != "first" {
		t.Fatalf("%+v", list)
	}
	_, err = d.Authenticate(ctx, p.tokens["U1"])
	must(t, err)
}

func TestTenantsAndMembers(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1", "U2", "X0")
	ctx := c.context()

	_, _, err := d.CreateTenant(ctx, ByUser("U1"), nil, NewTenant{ID: "T1", Name: "n", Owner: "U1"})
	wantSlug(t, err, "forbidden")
	made, _, err := d.CreateTenant(ctx, ByUser("U1"), nil, NewTenant{Name: "Mine", Owner: "U1", Region: "eu"})
	must(t, err)
	if !tenant.ValidID(string(made.Tenant)) || !made.UID.Valid() || made.Cell != "C2" || made.State != tenant.Provisioning || made.Epoch != 1 {
		t.Fatalf("%+v", made)
	}
	waiting, err := d.Provisioning(ctx)
	must(t, err)
	if len(waiting) != 1 || waiting[0] != made {
		t.Fatalf("%+v, not %+v", waiting, made)
	}
	a, err := d.Access("U1", string(made.Tenant))
	must(t, err)
	if a.Placement.State != tenant.Provisioning || a.Role != tenant.Owner {
		t.Fatalf("%+v", a)
	}
	must(t, d.ActivateTenant(ctx, made.UID, made.Epoch))
	must(t, d.ActivateTenant(ctx, made.UID, made.Epoch))
	if a, err = d.Access("U1", string(made.Tenant)); err != nil || a.Placement.State != tenant.Placed {
		t.Fatalf("%+v %v", a, err)
	}

	replayedCreation(c, d)

	m := c.join(d, made.UID, "U1", "U2", tenant.Viewer)
	if m.Name != "Mine" || m.Role != tenant.Viewer || m.Placement.Tenant != made.Tenant {
		t.Fatalf("%+v", m)
	}
	for _, foreign := range []struct {
		user tenant.UserID
		id   string
	}{{"X0", string(made.Tenant)}, {"U1", "T-none"}, {"U1", "../x"}, {"U1", ""}, {"", string(made.Tenant)}, {"u1", string(made.Tenant)}} {
		if _, err := d.Access(foreign.user, foreign.id); fault.Of(err) != fault.NotFound || err.Error() != fault.Unknown().Error() {
			t.Fatalf("%+v: %v", foreign, err)
		}
	}
	set, _, err := d.SetRole(ctx, ByUser("U1"), nil, made.UID, "U2", tenant.Finance)
	must(t, err)
	if a, err = d.Access("U2", string(made.Tenant)); err != nil || a.Role != tenant.Finance || a.Revision != set.Revision || set.Email != "U2@example.org" {
		t.Fatalf("%+v %+v %v", a, set, err)
	}
	_, err = d.SetSuspended(ctx, root, nil, made.UID, true)
	must(t, err)
	if a, err = d.Access("U2", string(made.Tenant)); err != nil || !a.Placement.Suspended {
		t.Fatalf("%+v %v", a, err)
	}
	_, err = d.SetSuspended(ctx, root, nil, made.UID, false)
	must(t, err)
	_, err = d.RemoveMember(ctx, ByUser("U1"), nil, made.UID, "U2")
	must(t, err)
	_, err = d.Access("U2", string(made.Tenant))
	wantSlug(t, err, "not-found")
	_, err = d.RemoveMember(ctx, ByUser("U1"), nil, made.UID, "U1")
	wantSlug(t, err, "last-owner")
	listsAre(c, d, made)
}

// replayedCreation makes a tenant of another user twice under one key.
func replayedCreation(c *cluster, d *Directory) {
	t, ctx := c.t, c.context()
	t.Helper()
	key := &raftfsm.Key{Operation: "createTenant", Key: "k"}
	in := NewTenant{Name: "Other", Owner: "X0"}
	first, replayed, err := d.CreateTenant(ctx, ByUser("X0"), key, in)
	must(t, err)
	again, twice, err := d.CreateTenant(ctx, ByUser("X0"), key, in)
	must(t, err)
	if replayed || !twice || again != first {
		t.Fatalf("%+v, then %+v", first, again)
	}
	must(t, d.ActivateTenant(ctx, first.UID, first.Epoch))
	if again, _, err = d.CreateTenant(ctx, ByUser("X0"), key, in); err != nil || again.State != tenant.Placed || again.UID != first.UID {
		t.Fatalf("%+v, %v", again, err)
	}
}

func listsAre(c *cluster, d *Directory, made tenant.Placement) {
	t, ctx := c.t, c.context()
	t.Helper()
	members, err := d.Members(ctx, made.UID)
	must(t, err)
	if len(members) != 1 || members[0].User != "U1" || members[0].Role != tenant.Owner {
		t.Fatalf("%+v", members)
	}
	mine, err := d.Memberships(ctx, "U1", "", 10)
	must(t, err)
	if len(mine) != 1 || mine[0].Name != "Mine" {
		t.Fatalf("%+v", mine)
	}
	one, err := d.Tenant(ctx, made.Tenant)
	must(t, err)
	if len(one.Owners) != 1 || one.Members != 1 {
		t.Fatalf("%+v", one)
	}
	all, err := d.Tenants(ctx, "", 10)
	must(t, err)
	if len(all) != 2 || all[0].Placement != one.Placement && all[1].Placement != one.Placement {
		t.Fatalf("%+v", all)
	}
	invite, _, err := d.Invite(ctx, ByUser("U1"), nil, made.UID, NewInvite{Email: "x@y", Role: tenant.Viewer})
	must(t, err)
	open, err := d.Invites(ctx, made.UID)
	must(t, err)
	if len(open) != 1 || open[0] != invite.Invite {
		t.Fatalf("%+v, not %+v", open, invite.Invite)
	}
	_, err = d.RevokeInvite(ctx, ByUser("U1"), nil, made.UID, invite.ID)
	must(t, err)
	must(t, d.Record(ctx, root, AuditEntry{Action: "show-tenant", Tenant: made.Tenant, UID: made.UID}))
	audit, next, err := d.Audit(ctx, AuditFilter{Tenant: made.Tenant, Limit: 3})
	must(t, err)
	if len(audit) != 3 || next != audit[2].ID || audit[0].Action != "show-tenant" || audit[0].Actor != root.String() || audit[1].Action != "revoke-invite" {
		t.Fatalf("%+v", audit)
	}
	older, next, err := d.Audit(ctx, AuditFilter{Tenant: made.Tenant, Actor: "U1", Before: audit[2].ID, Limit: 500})
	must(t, err)
	if next != 0 {
		t.Errorf("the audit goes on before %d", next)
	}
	for _, e := range older {
		if e.ID >= audit[2].ID || e.Actor != "U1" || e.Tenant != made.Tenant {
			t.Fatalf("%+v", e)
		}
	}
	cells, err := d.Cells(ctx)
	must(t, err)
	if len(cells) != 1 || cells[0].Tenants != 2 || cells[0].Nodes["n1"] != "127.0.0.1:1" {
		t.Fatalf("%+v", cells)
	}
}

func TestCellsAreReadAgainWhenTheyChange(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1")
	for range 2 {
		got, err := d.Cell("C2")
		must(t, err)
		if got.Nodes["n1"] != "127.0.0.1:1" || got.State != CellActive {
			t.Fatalf("%+v", got)
		}
	}
	_, err := d.PutCell(c.context(), root, nil, Cell{Name: "C2", Key: "k2", Region: "eu", State: CellDraining, Nodes: map[string]string{"n1": "127.0.0.1:2"}})
	must(t, err)
	got, err := d.Cell("C2")
	must(t, err)
	if got.Nodes["n1"] != "127.0.0.1:2" || got.State != CellDraining {
		t.Fatalf("%+v", got)
	}
	_, err = d.Cell("C9")
	wantSlug(t, err, "not-found")
}

func TestPruning(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1")
	ctx := c.context()
	for range 3 {
		_, err := d.OpenSession(ctx, "U1@example.org", "password of U1")
		must(t, err)
	}
	c.clock.advance(keepAudit + time.Hour)
	c.await("G1")
	must(t, d.prune(ctx))
	left, _, err := d.Audit(ctx, AuditFilter{Limit: 500})
	must(t, err)
	if len(left) != 1 || left[0].Action != "open-session" {
		t.Fatalf("%+v", left)
	}
}

func TestARestart(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	p := c.people(c.up["G1"].Directory, "U1")
	made := c.tenant(c.up["G1"].Directory, "T1", "U1")
	c.stop("G1")
	c.start("G1")
	c.await("G1")
	d := c.up["G1"].Directory
	if who, err := d.Authenticate(c.context(), p.tokens["U1"]); err != nil || who.User != "U1" {
		t.Fatal(who, err)
	}
	if a, err := d.Access("U1", "T1"); err != nil || a.Placement.UID != made.UID {
		t.Fatal(a, err)
	}
	if !d.Ready() {
		t.Fatal("not ready")
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	var t testing.T
	c := newCluster(&t, "G1")
	c.dir = b.TempDir()
	c.startAll()
	defer c.stopAll()
	d := c.up["G1"].Directory
	token := c.people(d, "U1").tokens["U1"]
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Authenticate(ctx, token); err != nil {
			b.Fatal(err)
		}
	}
}
