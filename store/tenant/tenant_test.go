package tenant

import (
	"crypto/rand"
	"strings"
	"testing"

	"celld/store/fault"
)

func TestIDSyntax(t *testing.T) {
	for id, ok := range map[string]bool{
		"T7": true, "a": true, "A-b-9": true, strings.Repeat("x", 32): true,
		"": false, "7T": false, "-a": false, "T_7": false, "T7 ": false, "T\x00": false, "Té": false,
		"..": false, "a/b": false, strings.Repeat("x", 33): false,
	} {
		if _, err := ParseID(id); (err == nil) != ok {
			t.Errorf("ParseID(%q): %v", id, err)
		}
	}
}

func TestUIDIsAFolderName(t *testing.T) {
	u, err := NewUID(rand.Reader)
	if err != nil || !u.Valid() {
		t.Fatal(u, err)
	}
	for _, bad := range []UID{"", "..", u + "a", u[1:], UID(strings.ToUpper(string(u))), "../../../../etc/passwd----x", u[:24] + "\r\n"} {
		if bad.Valid() {
			t.Errorf("%q passes as a uid", bad)
		}
	}
}

func TestMoveIDIsAPartOfAFolderName(t *testing.T) {
	m, err := NewMoveID(rand.Reader)
	if err != nil || !m.Valid() {
		t.Fatal(m, err)
	}
	if got, err := ParseMoveID(string(m)); got != m || err != nil {
		t.Error(got, err)
	}
	if other, err := NewMoveID(rand.Reader); other == m || err != nil {
		t.Error("two moves have one id", err)
	}
	if id, err := NewMoveID(strings.NewReader("too short")); id != "" || err == nil {
		t.Error("an id without enough randomness:", id)
	}
	for _, bad := range []MoveID{"", "0", "..", m + "a", m[1:], MoveID(strings.ToUpper(string(m))), m[:25] + "/", m[:25] + "1"} {
		if _, err := ParseMoveID(string(bad)); bad.Valid() || fault.Of(err) != fault.Invalid {
			t.Errorf("%q passes as a move's id", bad)
		}
	}
}

// The table of design section 4, written out by hand.
func TestRights(t *testing.T) {
	want := map[Action]string{
		ReadTenant: "VMFAO", ReadRecords: "VMFAO", LeaveTenant: "VMFAO", WriteRecords: "MFAO",
		ReadInternal: "FAO", WriteInternal: "FAO", ManageMembers: "AO", ManageOwners: "O", ProvisionStore: "",
	}
	for a := Action(0); a <= actions; a++ {
		for r := Role(0); r <= Owner+1; r++ {
			letter := ""
			if name := r.String(); name != "" {
				letter = strings.ToUpper(name[:1])
			}
			if got := r.Can(a); got != (letter != "" && strings.Contains(want[a], letter)) {
				t.Errorf("%v.Can(%v) = %v", r, a, got)
			}
		}
	}
	for a := Action(1); a < actions; a++ {
		if _, ok := want[a]; !ok || a.String() == "" {
			t.Errorf("action %d has no name or no line in this test", a)
		}
	}
}

func TestZeroScopeGrantsNothing(t *testing.T) {
	full := Scope{Tenant: "T7", UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Epoch: 1, Actor: "U7", Role: Owner, Revision: 1}
	if err := full.Allow(WriteRecords); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Scope{
		"zero": {}, "no tenant": drop(full, func(s *Scope) { s.Tenant = "" }), "no uid": drop(full, func(s *Scope) { s.UID = "" }),
		"no epoch": drop(full, func(s *Scope) { s.Epoch = 0 }), "no actor": drop(full, func(s *Scope) { s.Actor = "" }),
		"no role": drop(full, func(s *Scope) { s.Role = 0 }), "no such role": drop(full, func(s *Scope) { s.Role = Owner + 1 }),
	} {
		if fault.Of(s.Allow(ReadTenant)) != fault.Forbidden {
			t.Errorf("%s: allowed", name)
		}
	}
	if (Scope{Role: Member}).Internal() || !(Scope{Role: Finance}).Internal() {
		t.Error("internal fields are finance's and above")
	}
}

func drop(s Scope, f func(*Scope)) Scope {
	f(&s)
	return s
}

func TestNamesRoundTrip(t *testing.T) {
	for r := Viewer; r <= Owner; r++ {
		if got, err := ParseRole(r.String()); err != nil || got != r {
			t.Error(r, got, err)
		}
	}
	for s := Importing; s <= Retired; s++ {
		if got, ok := ParseState(s.String()); !ok || got != s {
			t.Error(s, got)
		}
	}
	if _, err := ParseRole(""); err == nil {
		t.Error("the empty role parses")
	}
	if _, ok := ParseState(""); ok {
		t.Error("the empty state parses")
	}
}
