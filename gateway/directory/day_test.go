package directory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"celld/raftfsm/verify"
	"celld/store"
	"celld/store/tenant"
)

// TestADayOfSessionsAndInvites plays what expires, by a clock that also steps back
// and forth by three hours: what has expired stays expired, what has not does not.
func TestADayOfSessionsAndInvites(t *testing.T) {
	c := newCluster(t, "G1").startAll()
	d := c.up["G1"].Directory
	c.people(d, "U1", "U2", "U3")
	p := c.tenant(d, "T1", "U1")
	ctx := c.context()
	open := func() SessionOpened {
		s, err := d.OpenSession(ctx, "U1@example.org", "password of U1")
		must(t, err)
		return s
	}
	invite := func(user tenant.UserID) InviteCreated {
		i, _, err := d.Invite(ctx, ByUser("U1"), nil, p.UID, NewInvite{Email: string(user) + "@example.org", Role: tenant.Member})
		must(t, err)
		return i
	}
	// The fake clock has no monotonic part, so no lease begins while it is set back.
	step := func(by time.Duration) {
		c.clock.advance(by)
		if by > 0 {
			c.await("G1")
		}
	}
	s, in2, in3 := open(), invite("U2"), invite("U3")
	hour := time.Hour
	for _, by := range []time.Duration{3 * hour, -3 * hour, 3 * hour, -3 * hour, 11 * hour} {
		step(by)
		if _, err := d.AuthenticateStale(ctx, s.Token); err != nil {
			t.Fatalf("the session after a step of %s: %v", by, err)
		}
	}
	if _, _, err := d.AcceptInvite(ctx, ByUser("U2"), nil, in2.Token); err != nil {
		t.Fatalf("the invite after eleven hours: %v", err)
	}
	step(2 * hour)
	_, err := d.Authenticate(ctx, s.Token)
	wantSlug(t, err, "unauthenticated")
	step(in3.ExpiresAt.Sub(c.clock.Now()))
	_, _, err = d.AcceptInvite(ctx, ByUser("U3"), nil, in3.Token)
	wantSlug(t, err, "invite-expired")
	later := open() // the directory's own time is past both
	step(-3 * hour)
	_, err = d.AuthenticateStale(ctx, s.Token)
	wantSlug(t, err, "unauthenticated")
	_, _, err = d.AcceptInvite(ctx, ByUser("U3"), nil, in3.Token)
	wantSlug(t, err, "invite-expired")
	if _, err := d.AuthenticateStale(ctx, later.Token); err != nil {
		t.Fatal(err)
	}

	// Pruned when past their time: sessions at once, invites after a week.
	step(3 * hour)
	must(t, d.prune(ctx))
	count := func(table string) (n int) {
		_, err := d.space.View(func(c *store.Conn) error {
			_, err := c.One("SELECT count(*) FROM "+table, func(r *store.Row) error { n = r.ColumnInt(0); return nil })
			return err
		})
		must(t, err)
		return n
	}
	if sessions, invites := count("session"), count("invite"); sessions != 1 || invites != 1 {
		t.Errorf("%d sessions and %d invites are left", sessions, invites)
	}
	step(keepInvites + hour)
	must(t, d.prune(ctx))
	if sessions, invites := count("session"), count("invite"); sessions != 0 || invites != 0 {
		t.Errorf("%d sessions and %d invites are left after a week", sessions, invites)
	}
}

// TestReplicasOfTheDirectoryAreCompared: a row that only one gateway has is found,
// by each of them; nothing is done about it but to say so.
func TestReplicasOfTheDirectoryAreCompared(t *testing.T) {
	c := three(t).startAll()
	leader, rest := c.leader()
	c.people(c.up[leader].Directory, "U1")
	compare := func() string {
		ctx := c.context()
		mark, _, err := c.up[leader].digests.Mark(ctx, "", true)
		must(t, err)
		out := ""
		for _, name := range append([]string{leader}, rest...) {
			j, err := c.up[name].digests.Verdict(ctx, mark)
			for errors.Is(err, verify.ErrNoMark) && ctx.Err() == nil { // not applied there yet
				j, err = c.up[name].digests.Verdict(ctx, mark)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out += fmt.Sprint(j.Verdict, j.Outliers, " ")
		}
		return out
	}
	if got := compare(); got != "equal[] equal[] equal[] " {
		t.Errorf("%s", got)
	}
	f, release, err := c.up[rest[1]].space.Acquire("")
	must(t, err)
	must(t, f.Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error {
			_, err := tx.Exec("UPDATE user SET name = 'flipped'")
			return err
		})
	}))
	release()
	want := fmt.Sprintf("divergent[%s] ", rest[1])
	if got := compare(); got != want+want+want {
		t.Errorf("%s", got)
	}
}
