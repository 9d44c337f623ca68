package dirfsm_test

import (
	"context"
	"fmt"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store/tenant"
)

func TestMembersAndRevisions(t *testing.T) {
	d := open(t)
	for _, u := range []string{"O1", "A1", "M1", "X1"} {
		d.user(u)
	}
	d.cell("C1", "eu", 10)
	d.tenant(uid(0), "T1", "O1", "")
	d.join(uid(0), "O1", "A1", tenant.Admin)
	m := d.join(uid(0), "A1", "M1", tenant.Member)

	// Revisions only grow, also over a removal.
	changed := into[dirfsm.MemberChanged](t, d.do("A1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "M1", Role: tenant.Finance}))
	removed := into[dirfsm.MemberChanged](t, d.do("A1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "M1"}))
	again := d.join(uid(0), "A1", "M1", tenant.Viewer)
	if !(m.Revision < changed.Revision && changed.Revision < removed.Revision && removed.Revision < again.Revision) {
		t.Fatalf("revisions: %d, %d, %d, %d", m.Revision, changed.Revision, removed.Revision, again.Revision)
	}

	// Who may do what, by the rows of the moment.
	d.refuse("not-found", "X1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "M1", Role: tenant.Owner})
	d.refuse("not-found", op, dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "M1", Role: tenant.Owner})
	d.refuse("not-found", "A1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(9), User: "M1", Role: tenant.Member})
	d.refuse("not-found", "A1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "X1", Role: tenant.Member})
	d.refuse("forbidden", "M1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "M1", Role: tenant.Owner})
	d.refuse("forbidden", "A1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "A1", Role: tenant.Owner})
	d.refuse("forbidden", "A1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "O1", Role: tenant.Viewer})
	d.refuse("forbidden", "A1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "O1"})
	d.refuse("forbidden", "M1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "A1"})
	d.refuse("forbidden", "A1", dirfsm.NumCreateInvite, dirfsm.CreateInvite{UID: uid(0), Invite: secret("i"), Email: "x@y", Role: tenant.Owner})
	d.refuse("forbidden", "M1", dirfsm.NumCreateInvite, dirfsm.CreateInvite{UID: uid(0), Invite: secret("i"), Email: "x@y", Role: tenant.Viewer})

	// The last owner stays, and can go once there is another.
	d.refuse("last-owner", "O1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "O1"})
	d.refuse("last-owner", "O1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "O1", Role: tenant.Admin})
	d.do("O1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "A1", Role: tenant.Owner})
	d.do("O1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "O1"})
	d.refuse("not-found", "O1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "M1", Role: tenant.Member})

	// Anyone may leave; suspended, nobody does anything.
	d.do(op, dirfsm.NumSetSuspended, dirfsm.SetSuspended{UID: uid(0), Suspended: true})
	d.refuse("tenant-suspended", "M1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "M1"})
	d.refuse("not-found", "X1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "X1"})
	d.do(op, dirfsm.NumSetSuspended, dirfsm.SetSuspended{UID: uid(0), Suspended: false})
	d.do("M1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(0), User: "M1"})
	d.refuse("forbidden", "A1", dirfsm.NumSetSuspended, dirfsm.SetSuspended{UID: uid(0)})
}

func TestInvites(t *testing.T) {
	d := open(t)
	for _, u := range []string{"O1", "A1", "B1", "B2"} {
		d.user(u)
	}
	d.cell("C1", "eu", 10)
	d.tenant(uid(0), "T1", "O1", "")
	d.tenant(uid(1), "T2", "B2", "")
	d.join(uid(0), "O1", "A1", tenant.Admin)
	invite := func(by, id, email string, role tenant.Role) []byte {
		s := secret(id)
		d.do(by, dirfsm.NumCreateInvite, dirfsm.CreateInvite{UID: uid(0), Invite: s, Email: email, Role: role, Lifetime: 1000})
		return s.Hash
	}
	d.refuse("already-member", "O1", dirfsm.NumCreateInvite, dirfsm.CreateInvite{UID: uid(0), Invite: secret("i0"), Email: "A1@EXAMPLE.org", Role: tenant.Viewer})

	// Bound to the address, used once, gone when revoked.
	h := invite("A1", "i1", "b1@Example.org", tenant.Member)
	d.refuse("not-found", "B2", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B2", Hash: h})
	d.refuse("forbidden", "B2", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B1", Hash: h})
	d.do("B1", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B1", Hash: h})
	d.refuse("not-found", "B1", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B1", Hash: h})
	h = invite("A1", "i2", "b2@example.org", tenant.Member)
	d.refuse("not-found", "B2", dirfsm.NumRevokeInvite, dirfsm.RevokeInvite{UID: uid(1), ID: "i2"})
	d.refuse("forbidden", "B1", dirfsm.NumRevokeInvite, dirfsm.RevokeInvite{UID: uid(0), ID: "i2"})
	d.do("O1", dirfsm.NumRevokeInvite, dirfsm.RevokeInvite{UID: uid(0), ID: "i2"})
	d.refuse("not-found", "B2", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B2", Hash: h})

	// It is worth what its sender may still give, and only for its time.
	h = invite("A1", "i3", "b2@example.org", tenant.Member)
	d.do("O1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "A1", Role: tenant.Viewer})
	d.refuse("not-found", "B2", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B2", Hash: h})
	d.do("O1", dirfsm.NumSetRole, dirfsm.SetRole{UID: uid(0), User: "A1", Role: tenant.Admin})
	d.now.Add(1000)
	d.refuse("invite-expired", "B2", dirfsm.NumAcceptInvite, dirfsm.AcceptInvite{User: "B2", Hash: h})
}

func TestKeys(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.cell("C1", "eu", 10)
	hash, err := raftfsm.HashOf("body")
	must(t, err)
	key := &raftfsm.Key{Actor: "U1", Operation: "createTenant", Key: "k1", Hash: hash}
	body := dirfsm.CreateTenant{ID: "T1", UID: uid(0), Name: "n", Owner: "U1", Tier: "pooled"}
	first, err := d.propose("U1", key, dirfsm.NumCreateTenant, body)
	must(t, err)
	body.ID, body.UID = "T2", uid(1) // a retry brings new random values
	again, err := d.propose("U1", key, dirfsm.NumCreateTenant, body)
	must(t, err)
	if !again.Replayed || into[dirfsm.TenantCreated](t, again) != into[dirfsm.TenantCreated](t, first) {
		t.Fatalf("the retry answered %+v", again)
	}
	if n := d.number("SELECT count(*) FROM tenant"); n != 1 {
		t.Fatalf("%d tenants", n)
	}
}

func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	d := open(t)
	d.user("U1")
	d.do("U1", dirfsm.NumOpenSession, dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret("s1"), Lifetime: 10})
	d.do("U1", dirfsm.NumOpenSession, dirfsm.OpenSession{User: "U1", PasswordVersion: 1, Session: secret("s2"), Lifetime: 1e9})
	d.now.Add(100)
	_, last := d.digest()
	d.refuse("forbidden", "U1", dirfsm.NumPrune, dirfsm.Prune{Sessions: start, Limit: 10})
	all := dirfsm.Prune{Sessions: start + 100, Invites: start + 100, Keys: start + 100, Audit: start + 100, Limit: 2}
	got := into[dirfsm.Pruned](t, d.do(gw, dirfsm.NumPrune, all))
	if got.Deleted != 3 || !got.More { // one session, two audit rows of three
		t.Fatalf("pruned %+v", got)
	}
	if n := d.number("SELECT count(*) FROM session"); n != 1 {
		t.Fatalf("%d sessions", n)
	}
	newest := d.number("SELECT max(id) FROM audit")
	d.do(op, dirfsm.NumRecord, dirfsm.Record{Action: "look"})
	if n := d.number("SELECT max(id) FROM audit"); n != newest+1 {
		t.Fatalf("the audit went on from %d with %d (at %+v)", newest, n, last)
	}
}

func TestTheSameCommandsMakeTheSameContent(t *testing.T) {
	script := func(d *directory) [32]byte {
		for _, u := range []string{"O1", "A1", "B1"} {
			d.now.Add(7)
			d.user(u)
		}
		d.cell("C1", "eu", 10)
		d.cell("C2", "eu", 10)
		for i := range byte(4) {
			d.tenant(uid(i), fmt.Sprint("T", i), "O1", "eu")
		}
		d.join(uid(1), "O1", "A1", tenant.Admin)
		d.now.Add(-5000) // a clock that is set back
		d.join(uid(1), "A1", "B1", tenant.Viewer)
		d.do("A1", dirfsm.NumRemoveMember, dirfsm.RemoveMember{UID: uid(1), User: "B1"})
		sum, _ := d.digest()
		return sum
	}
	a, b := open(t), open(t)
	if script(a) != script(b) {
		t.Fatal("two replicas of one log differ")
	}
	if n := a.number("SELECT count(*) FROM audit WHERE at < (SELECT max(at) FROM audit AS b WHERE b.id < audit.id)"); n != 0 {
		t.Fatal("time went back")
	}
}

func TestARestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	var sum [32]byte
	t.Run("first", func(t *testing.T) {
		d := openIn(t, dir)
		d.user("U1")
		sum, _ = d.digest()
	})
	d := openIn(t, dir)
	d.refuse("user-id-taken", op, dirfsm.NumCreateUser, dirfsm.CreateUser{ID: "u1", Email: "x@y", Name: "x"})
	if now, _, err := d.space.Digest(context.Background()); err != nil || now != sum {
		t.Fatalf("the content changed over a restart (%v)", err)
	}
}
