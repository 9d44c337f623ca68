package node

import (
	"testing"

	"celld/node/api"
	"celld/raftfsm"
	"celld/store/fault"
)

func TestWhoIsNew(t *testing.T) {
	in := api.NewMember{Node: "n4", ServerID: "n4~a", Address: "h:1"}
	for what, c := range map[string]struct {
		said   api.Status
		member bool
		want   string
	}{
		"fresh":                      {api.Status{ServerID: "n4~a"}, false, ""},
		"a member that moves":        {api.Status{ServerID: "n4~a", CellKey: "k", LastIndex: 9}, true, ""},
		"wiped since it was asked":   {api.Status{ServerID: "n4~b"}, false, "node-is-another"},
		"of another cell":            {api.Status{ServerID: "n4~a", CellKey: "other"}, false, "another-cell"},
		"removed, with its old data": {api.Status{ServerID: "n4~a", CellKey: "k", LastIndex: 9}, false, "node-was-removed"},
	} {
		if slug := slugOf(isNew(c.said, in, "k", c.member)); slug != c.want {
			t.Errorf("%s: %q, want %q", what, slug, c.want)
		}
	}
}

func slugOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.As(err).Slug
}

func TestWhoHasCaughtUp(t *testing.T) {
	m := raftfsm.Member{ID: "n4~a", Name: "C2/n4"}
	for what, c := range map[string]struct {
		said api.Status
		want bool
	}{
		"up to date":           {api.Status{ServerID: "n4~a", Ready: true, Applied: 7}, true},
		"behind":               {api.Status{ServerID: "n4~a", Ready: true, Applied: 6}, false},
		"not ready":            {api.Status{ServerID: "n4~a", Applied: 7}, false},
		"with a tenant absent": {api.Status{ServerID: "n4~a", Ready: true, Applied: 7, Absent: 1}, false},
		"wiped since":          {api.Status{ServerID: "n4~b", Ready: true, Applied: 7}, false},
	} {
		if got := caughtUp(c.said, m, 7); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
