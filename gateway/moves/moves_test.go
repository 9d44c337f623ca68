package moves_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"celld/gateway/moves"
	"celld/store/fault"
	"celld/store/tenant"
)

// reach brings a transfer to a state by the shortest way.
func reach(t *testing.T, s moves.State) moves.Move {
	t.Helper()
	m, err := moves.Plan(moves.Order{ID: moveID(0), Tenant: "T7", UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", From: end(cellC2), To: end(cellC5), EpochFrom: 1, EpochTo: 2, Reason: "closer"},
		moves.Entry{Index: 1, At: 1_800_000_000_000_000, Actor: "operator:ada", Operator: true})
	if err != nil {
		t.Fatal(err)
	}
	script := "claims term=1\nimported\ncopied bytes=100\ncaught-up bytes=120 rounds=2 tail=20 equal\nfroze at=210/77\nproved shows=FROZEN@1 w=210/77 equal on=2/3\n" +
		"activated at=34/78 pause=180000\nretired\ncompared equal rows=50"
	if s.Aborted() {
		script = "claims term=1\nimported\ngives-up reason=test\nsource-forgot\ndestination-forgot"
	}
	at := moves.Entry{Index: 1, At: m.PlannedAt, Actor: "gateway:G1"}
	for _, line := range strings.Split(script, "\n") {
		if m.State == s && m.Term != 0 {
			return m
		}
		at.Index++
		at.At += 1000
		if m, err = moves.Step(m, parseEvent(t, m, 1, strings.Fields(line)), at); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if m.State != s {
		t.Fatalf("%v was not reached: %v", s, m)
	}
	return m
}

// What each state allows, written out by hand.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		state    moves.State
		next     string
		owner    tenant.CellName
		paused   bool
		over     bool
		abort    string // what becomes of a move that is given up, or the refusal
		rollback bool
	}{
		{moves.Planned, "import", "C2", false, false, "aborting", false},
		{moves.Copying, "copy-base", "C2", false, false, "aborting", false},
		{moves.CatchingUp, "catch-up", "C2", false, false, "aborting", false},
		{moves.Freezing, "freeze", "C2", true, false, "aborting", false},
		{moves.Frozen, "prove", "C2", true, false, "aborting", false},
		{moves.Committed, "activate", "C5", true, false, "committed", false},
		{moves.Activating, "retire", "C5", false, false, "committed", false},
		{moves.Verifying, "compare", "C5", false, false, "committed", true},
		{moves.Complete, "", "C5", false, true, "committed", true},
		{moves.Aborting, "forget-source forget-destination", "C2", false, false, "aborting", false},
		{moves.Aborted, "", "C2", false, true, "aborted", false},
	} {
		m := reach(t, c.state)
		var next []string
		for _, do := range m.Next() {
			next = append(next, do.String())
		}
		owner, epoch := m.Owner()
		if strings.Join(next, " ") != c.next || owner.Cell != c.owner || (epoch == m.EpochTo) != (c.owner == "C5") || m.Paused() != c.paused || m.State.Over() != c.over {
			t.Errorf("%v: next %v, owner %s@%d, paused %v, over %v", m.State, next, owner.Cell, epoch, m.Paused(), m.State.Over())
		}
		after, err := moves.Step(m, parseEvent(t, m, 1, []string{"gives-up", "reason=test"}), entry)
		got := after.State.String()
		if err != nil {
			got = fault.As(err).Slug
		}
		if got != c.abort {
			t.Errorf("%v given up: %s", m.State, got)
		}
		if _, _, err := moves.PlanRollback(m, moveID(1), 2, 3, "back", byOp); (err == nil) != c.rollback {
			t.Errorf("%v rolled back: %v", m.State, err)
		}
		if s, ok := moves.ParseState(m.State.String()); !ok || s != m.State {
			t.Errorf("%v does not parse", m.State)
		}
	}
}

func TestRollbackNeedsTheCopy(t *testing.T) {
	m := reach(t, moves.Complete)
	if _, _, err := moves.PlanRollback(m, moveID(1), 3, 4, "back", byOp); fault.As(err).Slug != "moved-again" {
		t.Error(err)
	}
	closed, err := moves.Step(m, moves.Event{Move: m.ID, Epoch: m.EpochTo, What: moves.ClosesWindow, Reason: "a day is over"}, byOp)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := moves.PlanRollback(closed, moveID(1), 2, 3, "back", byOp); fault.As(err).Slug != "window-closed" {
		t.Error(err)
	}
	back, undone, err := moves.PlanRollback(m, moveID(1), 2, 3, "back", byOp)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := moves.PlanRollback(undone, moveID(2), 2, 4, "back", byOp); fault.As(err).Slug != "rollback-running" {
		t.Error(err)
	}
	if _, err := moves.Undone(m, back); err == nil {
		t.Error("a rollback of another move was taken for this one's")
	}
}

func TestTheReportSaysWhatHappened(t *testing.T) {
	m := reach(t, moves.Complete)
	want := moves.Report{Bytes: 120, Rounds: 2, Tail: 20, PauseMicros: 180000, Before: pages, Pages: pages, After: pages, Rows: 50,
		FreezeAt: m.PlannedAt + 4000, ActiveAt: m.PlannedAt + 7000}
	if m.Report != want {
		t.Errorf("%+v", m.Report)
	}
	// An executor that saw one end of the pause only: the log bounds it.
	m = reach(t, moves.Committed)
	m, err := moves.Step(m, parseEvent(t, m, 1, []string{"activated", "at=34/78"}), moves.Entry{Index: 9, At: m.Report.FreezeAt + 250_000, Actor: "gateway:G2"})
	if err != nil || m.Report.PauseMicros != 250_000 {
		t.Errorf("%v %+v", err, m.Report)
	}
}

func TestPlanRefuses(t *testing.T) {
	good := moves.Order{ID: moveID(0), Tenant: "T7", UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", From: end(cellC2), To: end(cellC5), EpochFrom: 1, EpochTo: 2, Reason: "closer"}
	for name, change := range map[string]func(*moves.Order){
		"no id": func(o *moves.Order) { o.ID = "" }, "no tenant": func(o *moves.Order) { o.Tenant = "" }, "no uid": func(o *moves.Order) { o.UID = "x" },
		"same cell": func(o *moves.Order) { o.To = o.From }, "same key": func(o *moves.Order) { o.To.Key = o.From.Key }, "no key": func(o *moves.Order) { o.To.Key = "" },
		"no epoch": func(o *moves.Order) { o.EpochFrom = 0 }, "same epoch": func(o *moves.Order) { o.EpochTo = 1 }, "no reason": func(o *moves.Order) { o.Reason = "" },
		"two lines": func(o *moves.Order) { o.Reason = "a\nb" }, "long": func(o *moves.Order) { o.Reason = strings.Repeat("x", moves.MaxText+1) },
		"not UTF-8": func(o *moves.Order) { o.Reason = "\xff" },
	} {
		o := good
		change(&o)
		if _, err := moves.Plan(o, byOp); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := moves.Plan(good, moves.Entry{Index: 1, Actor: strings.Repeat("x", moves.MaxActor+1)}); fault.Of(err) != fault.Invalid {
		t.Error("an actor without bound:", err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	m := reach(t, moves.Copying)
	for name, e := range map[string]moves.Event{
		"no event": {}, "one of later": {What: moves.Drops + 1}, "no reason": {What: moves.Broke, Attempt: 1},
		"long": {What: moves.GivesUp, Reason: strings.Repeat("x", moves.MaxText+1)}, "two lines": {What: moves.GivesUp, Reason: "a\nb"},
	} {
		e.Move, e.Epoch, e.Term = m.ID, m.EpochTo, 1
		if got, err := moves.Step(m, e, entry); fault.Of(err) != fault.Invalid || got != m {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := moves.Step(m, moves.Event{Move: m.ID, Epoch: 2, Term: 2, What: moves.Claims}, moves.Entry{Index: 1, Actor: strings.Repeat("x", 65)}); err == nil {
		t.Error("an executor's name without bound")
	}
}

func TestRecordsArePinned(t *testing.T) {
	m := reach(t, moves.Complete)
	raw, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := hex.EncodeToString(raw) + "\n" + string(shown) + "\n" + m.String() + "\n"
	if *update {
		if err := os.WriteFile("testdata/record.golden", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/record.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("directories hold records as in testdata/record.golden; now\n%s", got)
	}
}

// A record at all its bounds fits into MaxRecord.
func TestTheLargestRecordFits(t *testing.T) {
	m := reach(t, moves.Complete)
	text, most := strings.Repeat("ü", moves.MaxText/2), uint64(1<<64-1)
	m.Reason, m.Report.Finding, m.Report.Accepted, m.Decision.Why = text, text, text, text
	m.AskedBy, m.Executor, m.Decision.By = text[:moves.MaxActor], text[:moves.MaxActor], text[:moves.MaxActor]
	m.From.Key, m.To.Key = tenant.CellKey(text[:moves.MaxActor]), tenant.CellKey(text[:moves.MaxActor-2])
	m.Term, m.W, m.Arrived = most, moves.Watermark{Index: most, Sequence: most}, moves.Watermark{Index: most, Sequence: most}
	m.Report.Bytes, m.Report.Wasted, m.Report.Rounds, m.Report.Tail, m.Report.PauseMicros, m.Report.Rows = most, most, most, most, most, most
	raw, err := m.Encode()
	if err != nil || len(raw) > moves.MaxRecord {
		t.Fatal(len(raw), err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	raw, err := reach(t, moves.Frozen).Encode()
	if err != nil {
		t.Fatal(err)
	}
	decided := reach(t, moves.Frozen)
	decided.Decision.Commit = true
	if _, err := decided.Encode(); err == nil {
		t.Error("COMMIT in a state before it is encoded")
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "half": raw[:len(raw)/2], "more": append(bytes.Clone(raw), 0), "no map": {0x80}, "empty": {0xa0}, "large": make([]byte, moves.MaxRecord+1),
		"unknown key": append([]byte{raw[0] + 1}, append(bytes.Clone(raw[1:]), 0x18, 0x63, 0x01)...),
	} {
		if _, err := moves.Decode(b); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	raw, err := hex.DecodeString(strings.SplitN(golden(f), "\n", 2)[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := moves.Decode(b)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := moves.Decode(again); err != nil || back != m {
			t.Fatal(back, err)
		}
	})
}

func golden(f *testing.F) string {
	f.Helper()
	b, err := os.ReadFile("testdata/record.golden")
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}
