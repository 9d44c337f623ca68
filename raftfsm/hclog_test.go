package raftfsm

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestLibraryLogLines(t *testing.T) {
	var out bytes.Buffer
	logger := raftLogger(slog.New(slog.NewJSONHandler(&out, nil)).With("node", "n1"))
	logger.Info("something",
		"node", &raft.Raft{},
		"servers", hclog.Fmt("%+v", []raft.Server{{ID: "C2-n1", Address: "C2/n1"}}),
		"peer", raft.Server{ID: "C2-n2", Address: "C2/n2"},
		"term", uint64(3), "took", time.Second, "leader-id", raft.ServerID("C2-n1"), "error", errors.New("no"))
	for _, want := range []string{
		`"msg":"raft: something","node":"n1","raft_node":"Node at  [Follower]"`,
		`"servers":"[{Suffrage:Voter ID:C2-n1 Address:C2/n1}]"`,
		`"peer":"{Suffrage:Voter ID:C2-n2 Address:C2/n2}"`,
		`"term":3,"took":1000000000,"leader-id":"C2-n1","error":"no"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}
