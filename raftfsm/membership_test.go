package raftfsm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celld/store/fault"
)

// join starts a member that the cluster has not added yet, and that nobody's
// settings name: its address is known from the configuration alone.
func (c *cluster) join(name string) (m *member, address string) {
	c.t.Helper()
	dir := c.t.TempDir()
	id, err := Identify(filepath.Join(dir, "raft"), "C2", name, true, "")
	if err != nil {
		c.t.Fatal(err)
	}
	m = &member{name: "C2/" + name, id: id, dir: dir, files: newFiles(c.t, dir)}
	c.members = append(c.members, m)
	if err := c.start(m, false); err != nil {
		c.t.Fatal(err)
	}
	c.wires.mu.Lock()
	defer c.wires.mu.Unlock()
	address = c.wires.addr[m.name]
	delete(c.wires.addr, m.name)
	return m, address
}

// reconfigure makes a change at the leader, whoever that is, until it is made.
func (c *cluster) reconfigure(change func(g *Group, at Membership) error, among ...*member) {
	c.t.Helper()
	ctx := testContext(c.t)
	for ctx.Err() == nil {
		g := c.leader(among...).group
		at, err := g.Membership()
		if err == nil {
			err = change(g, at)
		}
		if err == nil {
			return
		}
		if fault.Of(err) != fault.Unavailable {
			c.t.Fatal(err)
		}
	}
	c.t.Fatal("the members were not changed in time")
}

func TestAMemberJoinsAndAnotherLeaves(t *testing.T) {
	c := newCluster(t, 3, nil)
	ctx := testContext(t)
	c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	for i := range 20 {
		c.must(keyed(t, command(t, cmdPut, "t1", put{K: "k", V: int64(i)}), fmt.Sprint(i)))
	}
	n4, address := c.join("n4")
	if n4.group.LastIndex() != 0 || n4.group.Ready() {
		t.Fatal("a member that nobody has added takes part")
	}
	c.reconfigure(func(g *Group, at Membership) error { return g.AddNonvoter(ctx, at.Index, n4.id, address) })
	old := c.leader()
	index, err := old.group.ReadIndex(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.settled(index)
	c.same("", "t1")
	at, err := old.group.Membership()
	if err != nil {
		t.Fatal(err)
	}
	m, found := at.Find(func(m Member) bool { return m.Name == "C2/n4" })
	if !found || m.ID != n4.id || m.Address != address || m.Voter || !at.Committed {
		t.Fatalf("the configuration has %+v of the new member", m)
	}
	if err := old.group.Promote(ctx, at.Index-1, m); !errors.Is(err, ErrMembershipBusy) {
		t.Errorf("a change of an older configuration: %v", err)
	}
	c.reconfigure(func(g *Group, at Membership) error { return g.Promote(ctx, at.Index, m) })

	// A restart finds the id again, and the settings still need not name the member.
	c.crash(n4)
	if id, err := Identify(filepath.Join(n4.dir, "raft"), "C2", "n4", true, ""); err != nil || id != n4.id {
		t.Fatalf("after a restart the member is %s, %v", id, err)
	}
	c.restart(n4)
	c.wires.mu.Lock()
	moved := c.wires.addr[n4.name]
	delete(c.wires.addr, n4.name)
	c.wires.mu.Unlock()
	others := c.members[:3]
	c.reconfigure(func(g *Group, at Membership) error { return g.AddNonvoter(ctx, at.Index, n4.id, moved) }, others...)

	// The leader leaves. Its vote is not missed, and what it led is not disturbed.
	old = c.leader(others...)
	if err := old.group.Transfer(ctx); err != nil {
		t.Fatal(err)
	}
	var rest []*member
	for _, m := range c.members {
		if m != old {
			rest = append(rest, m)
		}
	}
	c.reconfigure(func(g *Group, at Membership) error { return g.Remove(ctx, at.Index, old.id) }, rest...)
	out := c.must(keyed(t, command(t, cmdPut, "t1", put{K: "after"}), "after"), rest...)
	c.stop(old)
	c.settled(out.Index)
	c.same("", "t1")
	at, err = c.leader(rest...).group.Membership()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range at.Members {
		if m.ID == old.id || !m.Voter {
			t.Errorf("the configuration has %+v", m)
		}
	}
	if len(at.Members) != 3 {
		t.Errorf("%d members are left", len(at.Members))
	}
}

func TestIdentify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	if id, err := Identify(dir, "C2", "n1", false, ""); err != nil || id != "n1" {
		t.Errorf("a founding member is %q, %v", id, err)
	}
	first, err := Identify(dir, "C2", "n4", true, "")
	if err != nil || NameOf(first) != "n4" || first == "n4" {
		t.Fatalf("a new member is %q, %v", first, err)
	}
	for _, join := range []bool{true, false} {
		if id, err := Identify(dir, "C2", "n4", join, ""); err != nil || id != first {
			t.Errorf("with join %v it comes back as %q, %v", join, id, err)
		}
	}
	if _, err := Identify(dir, "C2", "n5", true, ""); err == nil || !strings.Contains(err.Error(), "another member") {
		t.Errorf("another member's folder: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if second, err := Identify(dir, "C2", "n4", true, ""); err != nil || second == first {
		t.Errorf("a wiped member is %q again, %v", second, err)
	}
	if err := os.Remove(filepath.Join(dir, stableFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, logFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Identify(dir, "C2", "n4", true, ""); err == nil || !strings.Contains(err.Error(), "empty the node's whole data folder") {
		t.Errorf("a folder that lost its id: %v", err)
	}
}

// A member that dies at any moment of making its first file begins anew, and is
// somebody else.
func TestIdentifyAfterACrash(t *testing.T) {
	whole := t.TempDir()
	s, err := openStableAt(filepath.Join(whole, stableFile), "C2", "n4~dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(whole, stableFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(raw) / 2, len(raw)} {
		for _, join := range []bool{true, false} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, unfinishedStable), raw[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			id, err := Identify(dir, "C2", "n4", join, "")
			if err != nil || NameOf(id) != "n4" || joined(id) != join || id == "n4~dead" {
				t.Errorf("with %d bytes of it written, join %v: %q, %v", n, join, id, err)
			}
			if again, err := Identify(dir, "C2", "n4", join, ""); err != nil || again != id {
				t.Errorf("with %d bytes of it written, join %v: %q and then %q, %v", n, join, id, again, err)
			}
		}
	}
}

// A member that joined, took part and lost its log does not come back as who it
// was; one that never took part may.
func TestAJoinedMemberThatLostItsLog(t *testing.T) {
	c := newCluster(t, 1, nil)
	ctx := testContext(t)
	n2, _ := c.join("n2")
	c.stop(n2)
	if err := os.Remove(filepath.Join(n2.dir, "raft", logFile)); err != nil {
		t.Fatal(err)
	}
	c.restart(n2)
	c.wires.mu.Lock()
	address := c.wires.addr[n2.name]
	c.wires.mu.Unlock()
	c.reconfigure(func(g *Group, at Membership) error { return g.AddNonvoter(ctx, at.Index, n2.id, address) })
	out := c.must(keyed(t, command(t, cmdOpen, "", open{Target: "t1"}), "o"))
	c.settled(out.Index)
	c.stop(n2)
	if err := os.Remove(filepath.Join(n2.dir, "raft", logFile)); err != nil {
		t.Fatal(err)
	}
	if err := c.start(n2, false); err == nil || !strings.Contains(err.Error(), "empty the node's whole data folder") {
		t.Errorf("it started again: %v", err)
	}
}
