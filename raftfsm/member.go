package raftfsm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// suffixMark stands in an id between a member's name and what makes the id
// unique for all time: "n4~mfxw2zdpojqxk3lu". Names have no such character.
const suffixMark = "~"

// addressMark stands in Raft's configuration between a member's logical name and
// the host:port with which it was added.
const addressMark = "@"

// suffixLength is in characters of five random bits each.
const suffixLength = 16

// NameOf is the name in an id or a logical name: "n4" of "n4~mfxw", "C2/n4" of
// "C2/n4~mfxw".
func NameOf(id string) string {
	name, _, _ := strings.Cut(id, suffixMark)
	return name
}

// joined reports whether a member came to its group later, under an id of its
// own making. A founding member's id is its name.
func joined(id string) bool { return strings.Contains(id, suffixMark) }

func newID(name string) string {
	return name + suffixMark + strings.ToLower(rand.Text()[:suffixLength])
}

// splitAddress takes an address of Raft's configuration apart: logical name with
// the id's suffix, and the host:port that it carries, "" for none.
func splitAddress(a raft.ServerAddress) (logical, hostport string) {
	logical, hostport, _ = strings.Cut(string(a), addressMark)
	return logical, hostport
}

func joinAddress(logical, hostport string) raft.ServerAddress {
	if hostport == "" {
		return raft.ServerAddress(logical)
	}
	return raft.ServerAddress(logical + addressMark + hostport)
}

// Identify returns the id of the member named name whose folder is dir: what the
// folder says, or for an empty one the name itself, as a founding member has it.
// With join an empty folder gets a new id, which never was anybody's: a member
// that was wiped is not taken for who it was. replace is as in Config.
func Identify(dir, group, name string, join bool, replace string) (string, error) {
	empty, err := raftDirEmpty(dir)
	if err != nil {
		return "", err
	}
	if !empty {
		return identified(dir, group, name, join, replace)
	}
	if !join {
		return name, nil
	}
	if err := makeDir(dir); err != nil {
		return "", err
	}
	id := newID(name)
	s, err := openStable(dir, group, id)
	if err != nil {
		return "", err
	}
	return id, s.Close()
}

// identified reads whose folder dir is.
func identified(dir, group, name string, join bool, replace string) (string, error) {
	path := filepath.Join(dir, stableFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && !join {
		return name, nil
	} else if err != nil {
		return "", fmt.Errorf("%s does not say whose folder it is: empty the node's whole data folder, so that it joins as a new member: %w", dir, err)
	}
	if err := walk(path, nil); err != nil {
		return "", (&Config{Replace: replace}).damaged(path, err)
	}
	options := boltOptions()
	options.ReadOnly = true
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	var member string
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucket)); b != nil {
			member = string(b.Get([]byte(keyMember)))
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return "", err
	}
	had, id, _ := strings.Cut(member, "\n")
	switch {
	case member == "" && !join:
		return name, nil
	case had != group || NameOf(id) != name:
		return "", fmt.Errorf("%s belongs to another member (%q); a member's id never changes", path, member)
	case join && !joined(id):
		return "", fmt.Errorf("%s belongs to %s, a founding member of %s: leave out the setting join", path, id, group)
	}
	return id, nil
}
