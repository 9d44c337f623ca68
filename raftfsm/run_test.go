package raftfsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"celld/store"
	"celld/store/fault"
)

const (
	cmdTake  Number = 11 // takes the number V; planned
	cmdTwice Number = 12 // refuses after a write; planned
)

// take refuses a negative number in its first part, and one that is taken by the
// file's own constraint.
func take(tx *store.Tx, _ *Command, b put) (int64, func() error, error) {
	if b.V < 0 {
		return 0, nil, fault.New(fault.Conflict, "negative", "no negative numbers")
	}
	order, err := tx.Next("order", func(c *store.Conn) (n int64, err error) {
		_, err = c.One("SELECT count(*) FROM item", func(r *store.Row) error { n = r.ColumnInt64(0); return nil })
		return n, err
	})
	return order, func() error {
		err := tx.Query("INSERT INTO item (k, v, at, n) VALUES (?, ?, ?, ?)", nil, b.K, order, tx.Now, b.V)
		if store.IsUnique(err) {
			return fault.New(fault.Conflict, "taken", "the number is taken")
		}
		return err
	}, err
}

func twice(tx *store.Tx, c *Command, b put) (int64, func() error, error) {
	_, write, err := take(tx, c, b)
	return 0, func() error {
		if err := write(); err != nil {
			return err
		}
		return write()
	}, err
}

// A planned handler and the same one in one part, within a savepoint, give equal
// answers and leave equal content, replays and refusals included.
func TestPlannedIsAsWhole(t *testing.T) {
	whole := Define(cmdTake, "take", TenantWrite, func(tx *store.Tx, c *Command, b put) (int64, error) {
		order, write, err := take(tx, c, b)
		if err != nil {
			return 0, err
		}
		return order, write()
	})
	var fsms []*fsm
	var spaces []*files
	for _, def := range []Definition{DefinePlanned(cmdTake, "take", TenantWrite, take), whole} {
		fs := newFilesFor(t, "t1")
		f, failed := alone(t, fs)
		f.table = NewTable(def)
		fsms, spaces = append(fsms, f), append(spaces, fs)
		t.Cleanup(func() {
			if *failed != nil {
				t.Error(*failed)
			}
		})
	}
	random := rand.New(rand.NewPCG(3, 4))
	seen := make(map[string]int)
	var sent []Command
	for index := uint64(1); index <= 200; index++ {
		var commands []Command
		for range 1 + random.IntN(4) {
			c := command(t, cmdTake, "t1", put{K: "a", V: random.Int64N(120) - 20})
			if random.IntN(4) > 0 {
				c = keyed(t, c, fmt.Sprint(random.IntN(80)))
			}
			if len(sent) > 0 && random.IntN(4) == 0 {
				c = sent[random.IntN(len(sent))]
			}
			commands, sent = append(commands, c), append(sent, c)
		}
		var answers [2][]result
		for i, f := range fsms {
			answers[i] = f.ApplyBatch([]*raft.Log{logOf(t, index, commands...)})[0].([]result)
		}
		for i, planned := range answers[0] {
			whole := answers[1][i]
			if a, b := fmt.Sprint(planned.outcome, planned.err), fmt.Sprint(whole.outcome, whole.err); a != b {
				t.Fatalf("entry %d, command %d: planned %s, whole %s", index, i, a, b)
			}
			seen[fmt.Sprint(planned.outcome.Replayed, planned.err)]++
		}
	}
	if len(seen) != 5 { // an effect, a replay, another request's key, negative, taken
		t.Fatalf("the outcomes were %v", seen)
	}
	if a, b := spaces[0].content(t, "t1"), spaces[1].content(t, "t1"); a != b {
		t.Errorf("planned:\n%s\nwhole:\n%s", a, b)
	}
}

// Nothing undoes what a planned handler has written: the transaction goes, and
// the member with it.
func TestPlannedRefusalAfterAWriteStopsTheMember(t *testing.T) {
	fs := newFilesFor(t, "t1")
	f, failed := alone(t, fs)
	f.table = NewTable(DefinePlanned(cmdTake, "take", TenantWrite, take), DefinePlanned(cmdTwice, "twice", TenantWrite, twice))
	f.ApplyBatch([]*raft.Log{logOf(t, 1, command(t, cmdTake, "t1", put{V: 1}))})
	before := fs.content(t, "t1")
	answers := f.ApplyBatch([]*raft.Log{logOf(t, 2, keyed(t, command(t, cmdTwice, "t1", put{V: 2}), "k"))})
	if err, stopped := answers[0].(error); !stopped || !errors.Is(err, errStopped) || *failed == nil {
		t.Fatalf("answered %v, failure %v", answers[0], *failed)
	}
	if after := fs.content(t, "t1"); after != before {
		t.Errorf("content\n%s\nbecame\n%s", before, after)
	}
}
