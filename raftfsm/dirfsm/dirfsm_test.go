package dirfsm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"celld/gateway/moves"
	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store/tenant"
)

func TestTableIsPinned(t *testing.T) {
	var b strings.Builder
	for _, d := range dirfsm.Table(func(uint64) {}, nil).Lines() {
		fmt.Fprintf(&b, "%d %s %d\n", d.Number, d.Name, d.Class)
	}
	want, err := os.ReadFile("testdata/table.golden")
	must(t, err)
	if b.String() != string(want) {
		t.Fatalf("the table of commands changed; numbers are for ever. Now:\n%s", b.String())
	}
}

func TestBodiesArePinned(t *testing.T) {
	for _, c := range []struct {
		body any
		want string
	}{
		{dirfsm.CreateUser{ID: "U1", Email: "a@b", Name: "A", Password: "p", Token: &dirfsm.Secret{ID: "t", Hash: []byte{1}}},
			"85625531636140626141" + "6170" + "8261744101"},
		{dirfsm.SetRole{UID: "u", User: "U1", Role: tenant.Admin}, "83617562553104"},
		{dirfsm.CreateTenant{ID: "T1", UID: "u", Name: "N", Owner: "U1", Region: "eu", Tier: "pooled"},
			"876254316175614e625531626575" + "66706f6f6c6564" + "60"},
		{dirfsm.PutCell{Name: "C1", Key: "k", Region: "eu", Tier: "pooled", State: "active", Capacity: 3, Nodes: []dirfsm.CellNode{{Name: "n1", Address: "a:1"}}},
			"87624331616b62657566706f6f6c6564666163746976650381" + "82626e3163613a31"},
		{dirfsm.PlanMove{Move: "m", UID: "u", To: "C5", Reason: "r", AtOnce: 2}, "85616d617562433561" + "7202"},
		{dirfsm.PlanRollback{Move: "r", Of: "m", Reason: "x"}, "836172616d6178"},
		{dirfsm.MoveEvent{Event: moves.Event{Move: "m", Epoch: 2, Term: 3, What: moves.Froze, At: moves.Watermark{Index: 9, Sequence: 5}}},
			"81a501616d02020303" + "0408" + "09a201090205"},
		{dirfsm.Prune{Sessions: 1, Invites: 2, Keys: 3, Audit: 4, Limit: 5}, "850102030405"},
	} {
		raw, err := raftfsm.Encode(c.body)
		must(t, err)
		if got := fmt.Sprintf("%x", raw); got != c.want {
			t.Errorf("%T is encoded as\n%s, logs have\n%s", c.body, got, c.want)
		}
	}
}

func TestUsersAreUniqueIgnoringCase(t *testing.T) {
	d := open(t)
	d.user("Ada")
	d.refuse("user-id-taken", op, dirfsm.NumCreateUser, dirfsm.CreateUser{ID: "aDA", Email: "other@example.org", Name: "x"})
	d.refuse("email-taken", op, dirfsm.NumCreateUser, dirfsm.CreateUser{ID: "Bob", Email: "ADA@Example.org", Name: "x"})
	d.refuse("forbidden", "Ada", dirfsm.NumCreateUser, dirfsm.CreateUser{ID: "Bob", Email: "bob@example.org", Name: "x"})
}

func TestCredentials(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.user("U2")
	d.do("U1", dirfsm.NumCreateToken, dirfsm.CreateToken{User: "U1", Token: secret("tok-1"), Name: "ci"})
	d.refuse("id-taken", "U1", dirfsm.NumCreateToken, dirfsm.CreateToken{User: "U1", Token: secret("tok-1"), Name: "ci"})
	d.refuse("not-found", "U2", dirfsm.NumCreateToken, dirfsm.CreateToken{User: "U1", Token: secret("tok-2"), Name: "theft"})
	d.refuse("not-found", "U2", dirfsm.NumRevokeToken, dirfsm.RevokeToken{User: "U1", ID: "tok-1"})
	d.refuse("not-found", "U2", dirfsm.NumRevokeToken, dirfsm.RevokeToken{User: "U2", ID: "tok-1"})
	d.do("U1", dirfsm.NumRevokeToken, dirfsm.RevokeToken{User: "U1", ID: "tok-1"})
	d.refuse("not-found", "U1", dirfsm.NumRevokeToken, dirfsm.RevokeToken{User: "U1", ID: "tok-1"})

	session := dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret("ses-1"), Lifetime: 500}
	first := into[dirfsm.SessionOpened](t, d.do("U1", dirfsm.NumOpenSession, session))
	if first.ExpiresAt != start+500 {
		t.Fatalf("the session ends at %d", first.ExpiresAt)
	}
	d.now.Add(100)
	if again := into[dirfsm.SessionOpened](t, d.do("U1", dirfsm.NumOpenSession, session)); again != first {
		t.Fatalf("a repetition answered %v, not %v", again, first)
	}
	d.refuse("forbidden", "U2", dirfsm.NumOpenSession, dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret("ses-2"), Lifetime: 500})
	d.do(op, dirfsm.NumSetPassword, dirfsm.SetPassword{User: "U1", Password: "y"})
	if n := d.number("SELECT count(*) FROM session"); n != 0 {
		t.Fatalf("%d sessions outlived the password", n)
	}
	// Verified against the old password, proposed after the new one.
	d.refuse("unauthenticated", "U1", dirfsm.NumOpenSession, dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret("ses-3"), Lifetime: 500})
}

func TestTheOldestSessionMakesRoom(t *testing.T) {
	d := open(t)
	d.user("U1")
	session := func(i int) {
		d.do("U1", dirfsm.NumOpenSession, dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret(fmt.Sprint("ses-", i)), Lifetime: 1e9})
	}
	session(0)
	d.now.Add(1)
	together(dirfsm.MaxSessions, func(i int) { session(i + 1) })
	if n := d.number("SELECT count(*) FROM session"); n != dirfsm.MaxSessions {
		t.Fatalf("%d sessions", n)
	}
	if n := d.number("SELECT count(*) FROM session WHERE session_id = 'ses-0'"); n != 0 {
		t.Fatal("it was not the oldest that went")
	}
	if d.touched.Load() == 0 {
		t.Fatal("a session was closed and nobody told")
	}
}

func TestPlacement(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.cell("C2", "eu", 2)
	d.cell("C1", "eu", 2)
	d.cell("C9", "us", 1)
	for i, want := range []string{"C1", "C2", "C1", "C2"} {
		if got := d.tenant(uid(byte(i)), fmt.Sprint("T", i), "U1", "eu"); string(got.Cell) != want || got.Epoch != 1 {
			t.Fatalf("tenant %d was placed in %s at epoch %d", i, got.Cell, got.Epoch)
		}
	}
	d.refuse("no-capacity", "U1", dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T5", UID: uid(5), Name: "n", Owner: "U1", Region: "eu", Tier: "pooled"})
	d.refuse("no-cell", "U1", dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T5", UID: uid(5), Name: "n", Owner: "U1", Region: "mars", Tier: "pooled"})
	d.refuse("no-cell", "U1", dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T5", UID: uid(5), Name: "n", Owner: "U1", Region: "us", Tier: "dedicated"})
	if got := d.tenant(uid(5), "T5", "U1", ""); got.Cell != "C9" || got.Region != "us" {
		t.Fatalf("with no region asked for, the tenant is in %s (%s)", got.Cell, got.Region)
	}
	d.refuse("tenant-id-taken", op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "t1", UID: uid(6), Name: "n", Owner: "U1", Tier: "pooled", Cell: "C1"})
	d.refuse("forbidden", "U1", dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T6", UID: uid(6), Name: "n", Owner: "U1", Tier: "pooled", Cell: "C1"})
	d.refuse("unknown-user", op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T6", UID: uid(6), Name: "n", Owner: "U9", Tier: "pooled"})

	d.refuse("forbidden", "U1", dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(1), Epoch: 1})
	d.refuse("placement-changed", gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(1), Epoch: 2})
	d.refuse("not-found", gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(9), Epoch: 1})
	d.do(gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(1), Epoch: 1})
	d.do(gw, dirfsm.NumActivateTenant, dirfsm.ActivateTenant{UID: uid(1), Epoch: 1})
	if n := d.number("SELECT count(*) FROM tenant WHERE state = 'active'"); n != 1 {
		t.Fatalf("%d tenants are active", n)
	}
}

func TestCells(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.cell("C1", "eu", 10)
	put := dirfsm.PutCell{Name: "C1", Key: "key-C1", Region: "eu", Tier: "pooled", State: "draining", Capacity: 10,
		Nodes: []dirfsm.CellNode{{Name: "n2", Address: "h:2"}}}
	with := func(change func(*dirfsm.PutCell)) dirfsm.PutCell { p := put; change(&p); return p }
	d.refuse("cell-key-changed", op, dirfsm.NumPutCell, with(func(p *dirfsm.PutCell) { p.Key = "other" }))
	d.refuse("cell-key-taken", op, dirfsm.NumPutCell, with(func(p *dirfsm.PutCell) { p.Name = "C2" }))
	d.refuse("cell-name-taken", op, dirfsm.NumPutCell, with(func(p *dirfsm.PutCell) { p.Name, p.Key = "c1", "other" }))
	d.refuse("forbidden", "U1", dirfsm.NumPutCell, put)
	d.tenant(uid(0), "T1", "U1", "eu")
	d.refuse("cell-has-tenants", op, dirfsm.NumPutCell, with(func(p *dirfsm.PutCell) { p.Region = "us" }))
	d.do(op, dirfsm.NumPutCell, put)
	if n := d.number("SELECT count(*) FROM cell_node"); n != 1 {
		t.Fatalf("%d nodes", n)
	}
	d.refuse("cell-draining", op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "T2", UID: uid(1), Name: "n", Owner: "U1", Tier: "pooled", Cell: "C1"})
}

func TestTenantsOfAUserAreLimited(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.cell("C1", "eu", 100_000)
	together(dirfsm.MaxTenants, func(i int) {
		u := tenant.UID(fmt.Sprintf("%026d", i))
		d.do(op, dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: tenant.ID(fmt.Sprint("T", i)), UID: u, Name: "n", Owner: "U1", Tier: "pooled"})
	})
	d.refuse("tenant-limit", "U1", dirfsm.NumCreateTenant, dirfsm.CreateTenant{ID: "Tx", UID: uid(0), Name: "n", Owner: "U1", Tier: "pooled"})
}
