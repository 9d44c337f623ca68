package mtls

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestIdentities(t *testing.T) {
	for _, s := range []string{"celld://node/C2/n1", "celld://gateway/G1"} {
		id, err := Parse(s)
		if err != nil || id.String() != s {
			t.Errorf("%s became %v, %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", "celld://", "celld://node/C2", "celld://node/C2/", "celld://node//n1", "celld://node/C2/n1/x", "celld://gateway/",
		"celld://gateway/G1/x", "celld://user/U7", "http://node/C2/n1", "celld://node/C2/n 1", "CELLD://node/C2/n1", "celld://node/C2/n1?x",
	} {
		if _, err := Parse(s); err == nil {
			t.Errorf("%q is an identity", s)
		}
	}
	if Member("C2", "C2/n1") != Node("C2", "n1") || Member(Directory, "G1") != Gateway("G1") {
		t.Error("members have other identities")
	}
	for _, c := range []struct {
		group, identity string
		want            bool
	}{
		{"C2", Node("C2", "n1"), true}, {"C2", Node("C5", "n1"), false}, {"C2", Gateway("C2"), false}, {"C2", "", false}, {"", Gateway("G1"), false},
		{Directory, Gateway("G1"), true}, {Directory, Node("C2", "n1"), false}, {Directory, Node(Directory, "n1"), false},
	} {
		if got := MayJoin(c.group, c.identity); got != c.want {
			t.Errorf("MayJoin(%q, %q) is %v", c.group, c.identity, got)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err == nil {
		t.Error("a CA was replaced")
	}
	loaded, err := LoadCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	pki, err := loaded.Issue(Gateway("G1"), time.Now(), 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if pki.Cert.Leaf.NotAfter.After(loaded.cert.NotAfter) {
		t.Error("a certificate outlives its CA")
	}
	own := filepath.Join(dir, "g1")
	if err := pki.Save(own); err != nil {
		t.Fatal(err)
	}
	again, err := LoadDir(own)
	if err != nil || again.Identity != Gateway("G1") {
		t.Fatalf("loaded %+v, %v", again, err)
	}
	for _, secret := range []string{filepath.Join(own, KeyFile), filepath.Join(dir, caKeyFile)} {
		if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", secret, info.Mode(), err)
		}
		if err := os.Chmod(secret, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadDir(own); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a key that others can read: %v", err)
	}
	if _, err := LoadCA(dir); err == nil {
		t.Error("a CA key that others can read was taken")
	}
	if _, err := LoadDir(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
}

func TestIssueChecksTheIdentity(t *testing.T) {
	ca, err := NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Issue("celld://user/U7", time.Now(), time.Hour); err == nil {
		t.Error("a certificate for no identity")
	}
	if _, err := PeerIdentity(nil); err == nil {
		t.Error("nobody has an identity")
	}
}
