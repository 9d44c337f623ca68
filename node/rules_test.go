package node

import (
	"errors"
	"strings"
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

func TestWhoCanCarryACell(t *testing.T) {
	one := func(name string, said api.Status, err error) health {
		said.ServerID = name + said.ServerID
		return health{raftfsm.Member{ID: name, Name: "C2/" + name, Voter: true}, said, err}
	}
	whole := api.Status{Ready: true, Applied: 5000}
	n1, n2, silent := one("n1", whole, nil), one("n2", whole, nil), one("n3", api.Status{}, errors.New("refused"))
	for what, c := range map[string]struct {
		stay       []health
		slug, says string
	}{
		"two of two":                  {[]health{n1, n2}, "", ""},
		"two of three":                {[]health{n1, n2, silent}, "", ""},
		"one of two":                  {[]health{n1, silent}, "quorum-at-risk", "only 1 of 2 nodes could go on, which is no majority (n3 does not answer)"},
		"with one that lost its data": {[]health{n1, one("n3", api.Status{ServerID: "~new", Ready: true, Applied: 5000}, nil)}, "quorum-at-risk", "n3 has lost its data"},
		"with one that starts":        {[]health{n1, one("n3", api.Status{Applied: 5000}, nil)}, "quorum-at-risk", "n3 is not ready"},
		"with one far behind":         {[]health{n1, one("n3", api.Status{Ready: true, Applied: 3000}, nil)}, "quorum-at-risk", "n3 is 2000 log entries behind"},
		"with one close behind":       {[]health{n1, one("n3", api.Status{Ready: true, Applied: 4500}, nil)}, "", ""},
		"with an absent tenant":       {[]health{n1, n2, one("n3", api.Status{Ready: true, Applied: 5000, Absent: 7}, nil)}, "node-has-absences", "n3 lacks 7 tenants"},
	} {
		err := canCarry(c.stay, "n4", 5000)
		if slug := slugOf(err); slug != c.slug || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q with %q", what, err, c.slug, c.says)
		}
	}
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
