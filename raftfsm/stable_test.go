package raftfsm

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// The term of a vote is not there before its candidate is, however the store is
// closed in between.
func TestVoteIsOneTransaction(t *testing.T) {
	dir := t.TempDir()
	reopen := func(s *stableStore) *stableStore {
		t.Helper()
		if s != nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := openStable(dir, "C2", "id1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen(nil)
	set := func(term uint64, candidate string) {
		t.Helper()
		if err := s.SetUint64([]byte(keyVoteTerm), term); err != nil {
			t.Fatal(err)
		}
		if candidate == "" {
			return
		}
		if err := s.Set([]byte(keyVoteFor), []byte(candidate)); err != nil {
			t.Fatal(err)
		}
	}
	set(4, "n1")
	set(5, "") // and then it crashed
	s = reopen(s)
	term, err := s.GetUint64([]byte(keyVoteTerm))
	candidate, err2 := s.Get([]byte(keyVoteFor))
	if err != nil || err2 != nil || term != 4 || string(candidate) != "n1" {
		t.Errorf("vote of term %d for %s, %v, %v", term, candidate, err, err2)
	}
	set(6, "n2")
	s = reopen(s)
	if term, err := s.GetUint64([]byte(keyVoteTerm)); err != nil || term != 6 {
		t.Errorf("vote of term %d, %v", term, err)
	}
	if _, err := s.Get([]byte("other")); !errors.Is(err, errNotFound) || err.Error() != "not found" {
		t.Errorf("a missing key: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The library uses the names that the store looks for.
func TestVoteKeysAreTheLibrarys(t *testing.T) {
	c := newCluster(t, 3, nil)
	m := c.leader()
	s := m.group.stores.stable
	term, err := s.GetUint64([]byte(keyVoteTerm))
	candidate, err2 := s.Get([]byte(keyVoteFor))
	current, err3 := s.GetUint64([]byte(keyTerm))
	if err := errors.Join(err, err2, err3); err != nil || term == 0 || term > current || len(candidate) == 0 {
		t.Errorf("vote of term %d for %q in term %d: %v", term, candidate, current, err)
	}
}

var _ raft.StableStore = (*stableStore)(nil)
