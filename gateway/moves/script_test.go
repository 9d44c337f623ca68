package moves_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"celld/gateway/moves"
	"celld/store/fault"
	"celld/store/tenant"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestScripts runs testdata/*.txt: each line that begins with "> " is a verb, and
// below it stands what came of it. Verbs are
//
//	plan, rollback   make a move m1 (C2 -> C5) or its rollback m2
//	operator ...     the event that follows is an operator's, not the executor's
//	<event> ...      an event, with term= (default the claimed one), attempt= (default
//	                 the present one), epoch=, move=, at=index/sequence, bytes=, rounds=,
//	                 tail=, pause=, rows=, reason=, equal, and for proofs
//	                 shows=STATE@epoch, w=index/sequence, on=durable/voters
//
// Each verb stands in a log entry of its own, a second after the one before.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := transcript(t, string(want))
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(want) {
				t.Errorf("%s; now it is\n%s", name, got)
			}
		})
	}
}

type desk struct {
	at   moves.Entry
	m    moves.Move
	kept moves.Move // the undone one, while m is its rollback
}

func transcript(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	d := desk{at: moves.Entry{At: 1_800_000_000_000_000}}
	for _, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
		}
		if verb, ok := strings.CutPrefix(line, "> "); ok {
			fmt.Fprintf(&out, "%s\n%s", line, d.run(t, verb))
		}
	}
	return out.String()
}

func (d *desk) run(t *testing.T, line string) string {
	t.Helper()
	d.at.Index++
	d.at.At += 1_000_000
	d.at.Actor, d.at.Operator = "gateway:G1", false
	words := strings.Fields(line)
	if words[0] == "operator" || words[0] == "plan" || words[0] == "rollback" {
		d.at.Actor, d.at.Operator = "operator:ada", true
	}
	before := d.m
	var err error
	switch words[0] {
	case "plan":
		d.m, err = moves.Plan(moves.Order{ID: moveID(0), Tenant: "T7", UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", From: end(cellC2), To: end(cellC5), EpochFrom: 1, EpochTo: 4, Reason: "closer to them"}, d.at)
	case "rollback":
		var rollback, undone moves.Move
		rollback, undone, err = moves.PlanRollback(d.m, moveID(1), 4, 5, "it got slower", d.at)
		if err == nil {
			d.m, d.kept = rollback, undone
		}
	case "operator":
		d.m, err = moves.Step(d.m, parseEvent(t, d.m, 0, words[1:]), d.at)
	default:
		d.m, err = moves.Step(d.m, parseEvent(t, d.m, d.m.Term, words), d.at)
	}
	var refusal *fault.Error
	switch {
	case errors.As(err, &refusal):
		return fmt.Sprintf("  refused %s: %s\n", refusal.Slug, shortIDs(refusal.Detail))
	case err != nil:
		t.Fatalf("%s: %v", line, err)
	case d.m == before:
		return "  nothing changes\n"
	}
	return d.show(t)
}

func (d *desk) show(t *testing.T) string {
	t.Helper()
	m := d.m
	owner, epoch := m.Owner()
	s := fmt.Sprintf("  %s, owner %s@%d, next %v", m.State, owner.Cell, epoch, m.Next())
	if m.Paused() {
		s += ", writes wait"
	}
	if m.Decision.Index != 0 {
		s += fmt.Sprintf(", decided at %d", m.Decision.Index)
	}
	if m.Copy != moves.NoCopy {
		s += fmt.Sprintf(", copy %s", m.Copy)
	}
	if m.Kind == moves.Rollback {
		var err error
		if d.kept, err = moves.Undone(d.kept, m); err != nil {
			t.Fatal(err)
		}
		s += fmt.Sprintf("; m1 is %s, copy %s", d.kept.State, d.kept.Copy)
	}
	return s + "\n"
}

func shortIDs(s string) string {
	return strings.NewReplacer(string(moveID(0)), "m1", string(moveID(1)), "m2", string(moveID(2)), "m3").Replace(s)
}

func parseEvent(t *testing.T, m moves.Move, term uint64, words []string) moves.Event {
	t.Helper()
	e := moves.Event{Move: m.ID, Epoch: m.EpochTo, Term: term, Attempt: m.Attempt}
	for w := moves.Claims; w <= moves.Drops; w++ {
		if w.String() == words[0] {
			e.What = w
		}
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "term":
			e.Term = number(t, value)
		case "attempt":
			e.Attempt = uint32(number(t, value))
		case "epoch":
			e.Epoch = tenant.Epoch(number(t, value))
		case "move":
			e.Move = moveID(int(number(t, value[1:])) - 1)
		case "at":
			e.At = watermark(t, value)
		case "bytes":
			e.Bytes = number(t, value)
		case "rounds":
			e.Rounds = number(t, value)
		case "tail":
			e.Tail = number(t, value)
		case "pause":
			e.Pause = number(t, value)
		case "rows":
			e.Rows = number(t, value)
		case "reason":
			e.Reason = strings.ReplaceAll(value, "_", " ")
		case "equal":
			e.Proof.Source, e.Proof.Staged = pages, pages
		case "differ":
			e.Proof.Source, e.Proof.Staged = pages, moves.Digest{2}
		case "shows":
			state, epoch, _ := strings.Cut(value, "@")
			e.Proof.State, _ = tenant.ParseState(state)
			e.Proof.Epoch = tenant.Epoch(number(t, epoch))
		case "w":
			e.Proof.W = watermark(t, value)
		case "on":
			w := watermark(t, value)
			e.Proof.Durable, e.Proof.Voters = uint32(w.Index), uint32(w.Sequence)
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return e
}

func watermark(t *testing.T, s string) moves.Watermark {
	t.Helper()
	index, sequence, _ := strings.Cut(s, "/")
	return moves.Watermark{Index: number(t, index), Sequence: number(t, sequence)}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
