package cellfsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	move1   = tenant.MoveID("maaaaaaaaaaaaaaaaaaaaaaaaa")
	move2   = tenant.MoveID("mbaaaaaaaaaaaaaaaaaaaaaaaa")
	elseKey = tenant.CellKey("OTHERCELL")
	planned = int64(1_000_000)
)

// staged is the watermark of the file that stage makes.
var staged = tenant.Watermark{Index: 70, Sequence: 3}

func of(m tenant.MoveID) cellfsm.MoveRef {
	return cellfsm.MoveRef{Move: m, UID: testUID, Planned: planned}
}

func says(m tenant.MoveID, commit bool) cellfsm.Decision {
	return cellfsm.Decision{Move: m, Commit: commit, Index: 9}
}

// The commands of a move that takes T7 away at epoch 1, and of one that brings it
// at epoch 3 from a cell that has it at 2.
func (r *replica) moveCommands(m tenant.MoveID) map[string]raftfsm.Command {
	write := cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}}
	own := func(n raftfsm.Number, body any) raftfsm.Command { return command(r.t, n, "", 0, body) }
	return map[string]raftfsm.Command{
		"start":     own(cellfsm.MoveStartNumber, cellfsm.MoveStart{Of: of(m), Epoch: 1}),
		"freeze":    own(cellfsm.MoveFreezeNumber, cellfsm.MoveFreeze{Of: of(m), Epoch: 1}),
		"thaw":      own(cellfsm.MoveThawNumber, cellfsm.MoveThaw{Of: of(m), Epoch: 1, Decision: says(m, false)}),
		"retire":    own(cellfsm.MoveRetireNumber, cellfsm.MoveRetire{Of: of(m), Epoch: 1, Decision: says(m, true)}),
		"drop":      own(cellfsm.MoveDropNumber, cellfsm.MoveDrop{Of: of(m), Epoch: 1}),
		"abort":     own(cellfsm.MoveAbortNumber, cellfsm.MoveAbort{Of: of(m), Decision: says(m, false)}),
		"import":    own(cellfsm.MoveImportNumber, importing(m)),
		"activate":  own(cellfsm.MoveActivateNumber, cellfsm.MoveActivate{Of: of(m), Epoch: 3, Watermark: staged, Decision: says(m, true)}),
		"provision": own(cellfsm.ProvisionTenantNumber, provision(testUID, testID, 1)),
		"write":     command(r.t, cellfsm.CreateCustomerNumber, testUID, 1, write),
		"write3":    command(r.t, cellfsm.CreateCustomerNumber, testUID, 3, write),
		"prune":     pruning(r.t, 1, 1, 0, 10),
		"prune3":    command(r.t, cellfsm.PruneNumber, testUID, 3, cellfsm.Prune{Keys: 1 << 50, Audit: 1 << 50, Limit: 10}),
	}
}

func importing(m tenant.MoveID) cellfsm.MoveImport {
	return cellfsm.MoveImport{Of: of(m), Tenant: testID, Epoch: 3, FromEpoch: 2, FromKey: elseKey, Cell: testKey, Secret: provision(testUID, testID, 1).Secret}
}

// play applies steps like "freeze" and "freeze 2", which is of the other move.
func (r *replica) play(steps ...string) (last raftfsm.Applied) {
	r.t.Helper()
	for _, step := range steps {
		name, other, _ := strings.Cut(step, " ")
		m := move1
		if other == "2" {
			m = move2
		}
		if name == "stage" {
			r.stage(m)
			continue
		}
		c, known := r.moveCommands(m)[name]
		if !known {
			r.t.Fatalf("no command %s", step)
		}
		if last = r.do(c); last.Err != nil {
			r.t.Fatalf("%s: %v", step, last.Err)
		}
	}
	return last
}

// stage puts a file in the place of an arrival, as it comes from its source.
func (r *replica) stage(m tenant.MoveID) {
	r.t.Helper()
	path, err := r.space.PrepareArrival(testUID, m)
	if err == nil {
		err = store.Create(path, cellfsm.TenantSchema(), store.Control{
			UID: testUID, Tenant: testID, CellKey: elseKey, Epoch: 2, State: tenant.Frozen, Move: m,
			Applied: staged.Index, Sequence: staged.Sequence, LastTime: 5,
		}, 5)
	}
	if err == nil {
		err = r.space.CheckArrival(testUID, m, staged)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// describe says where T7 stands, in one line that two replicas share.
func (r *replica) describe() string {
	r.t.Helper()
	line := "none"
	name := map[tenant.MoveID]string{move1: "(1)", move2: "(2)", "": ""}
	row, err := r.space.Tenant(testUID)
	if err == nil {
		line = fmt.Sprintf("%s%s@%d", row.State, name[row.Move], row.Epoch)
		_, ctl := r.digest(testUID)
		if ctl.State != row.State || ctl.Move != row.Move && ctl.State != tenant.Active || ctl.Epoch != row.Epoch || ctl.CellKey != testKey {
			r.t.Errorf("cell.db has %+v, the file %+v", row, ctl)
		}
	} else if !errors.Is(err, cellfsm.ErrNotHere) {
		r.t.Fatal(err)
	}
	for _, m := range []tenant.MoveID{move1, move2} {
		if _, err := r.space.Arrival(testUID, m); err == nil {
			line += " importing" + name[m]
		} else if !errors.Is(err, cellfsm.ErrNoArrival) {
			r.t.Fatal(err)
		}
	}
	return line
}

// everything is all that a refusal must not change.
func (r *replica) everything() string {
	sum, ctl := r.digest("")
	all := fmt.Sprintf("%x %+v %s", sum, ctl, r.describe())
	if _, err := r.space.Tenant(testUID); err == nil {
		sum, ctl := r.digest(testUID)
		all += fmt.Sprintf(" %x %+v", sum, ctl)
	}
	return all
}

// situations are all places in which a move's commands may meet a cell: how it came
// there, and what each command does: where T7 stands then, or the refusal.
func situations() []struct{ name, before, commands string } {
	return []struct{ name, before, commands string }{
		{"unknown", "", `start placement-changed; freeze placement-changed; thaw placement-changed; retire placement-changed;
			drop placement-changed; abort =none; import =none importing(1); activate move-unknown; provision =ACTIVE@1;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"active", "provision", `start =ACTIVE@1; freeze =FROZEN(1)@1; thaw not-frozen; retire not-frozen;
			drop not-retired; abort =ACTIVE@1; import tenant-exists; activate move-unknown; provision =ACTIVE@1;
			write =ACTIVE@1; write3 placement-changed; prune nothing-to-prune; prune3 placement-changed`},
		{"frozen", "provision, freeze", `start tenant-frozen; freeze =FROZEN(1)@1; thaw =ACTIVE@1; retire =RETIRED(1)@1;
			drop not-retired; abort =FROZEN(1)@1; import tenant-exists; activate move-unknown; provision =FROZEN(1)@1;
			write tenant-frozen; write3 placement-changed; prune tenant-frozen; prune3 placement-changed`},
		{"frozen by another", "provision, freeze 2", `start tenant-frozen; freeze tenant-frozen; thaw tenant-frozen; retire tenant-frozen;
			drop not-retired; abort =FROZEN(2)@1; import tenant-exists; activate move-unknown; provision =FROZEN(2)@1;
			write tenant-frozen; write3 placement-changed; prune tenant-frozen; prune3 placement-changed`},
		{"retired", "provision, freeze, retire", `start move-over; freeze move-over; thaw move-over; retire =RETIRED(1)@1;
			drop =none; abort move-over; import move-over; activate move-over; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"retired by another", "provision, freeze 2, retire 2", `start placement-changed; freeze placement-changed; thaw placement-changed; retire placement-changed;
			drop not-retired; abort =RETIRED(2)@1; import =RETIRED(2)@1 importing(1); activate move-unknown; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"arriving", "import, stage", `start placement-changed; freeze placement-changed; thaw placement-changed; retire placement-changed;
			drop placement-changed; abort =none; import =none importing(1); activate =ACTIVE(1)@3; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"arriving by another", "import 2, stage 2", `start placement-changed; freeze placement-changed; thaw placement-changed; retire placement-changed;
			drop placement-changed; abort =none importing(2); import tenant-arriving; activate move-unknown; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"retired, arriving", "provision, freeze 2, retire 2, import, stage", `start placement-changed; freeze placement-changed; thaw placement-changed; retire placement-changed;
			drop not-retired; abort =RETIRED(2)@1; import =RETIRED(2)@1 importing(1); activate =ACTIVE(1)@3; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"arrived", "import, stage, activate", `start move-over; freeze move-over; thaw move-over; retire move-over;
			drop placement-changed; abort move-over; import move-over; activate =ACTIVE(1)@3; provision tenant-exists;
			write placement-changed; write3 =ACTIVE(1)@3; prune placement-changed; prune3 tenant-unsettled`},
		{"dropped", "provision, freeze, retire, drop", `start move-over; freeze move-over; thaw move-over; retire =none;
			drop =none; abort move-over; import move-over; activate move-over; provision tenant-exists;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"aborted, not here", "abort", `start move-over; freeze move-over; thaw placement-changed; retire move-over;
			drop placement-changed; abort =none; import move-over; activate move-over; provision =ACTIVE@1;
			write placement-changed; write3 placement-changed; prune placement-changed; prune3 placement-changed`},
		{"aborted, active", "provision, abort", `start move-over; freeze move-over; thaw =ACTIVE@1; retire move-over;
			drop not-retired; abort =ACTIVE@1; import move-over; activate move-over; provision =ACTIVE@1;
			write =ACTIVE@1; write3 placement-changed; prune nothing-to-prune; prune3 placement-changed`},
		{"aborted, frozen", "provision, freeze, abort", `start move-over; freeze move-over; thaw =ACTIVE@1; retire move-over;
			drop not-retired; abort =FROZEN(1)@1; import move-over; activate move-over; provision =FROZEN(1)@1;
			write tenant-frozen; write3 placement-changed; prune tenant-frozen; prune3 placement-changed`},
		{"thawed", "provision, freeze, thaw", `start move-over; freeze move-over; thaw =ACTIVE@1; retire move-over;
			drop not-retired; abort =ACTIVE@1; import move-over; activate move-over; provision =ACTIVE@1;
			write =ACTIVE@1; write3 placement-changed; prune nothing-to-prune; prune3 placement-changed`},
	}
}

func inState(t *testing.T, before string) *replica {
	t.Helper()
	r := openReplica(t, t.TempDir())
	r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: testKey})
	if before != "" {
		r.play(strings.Split(before, ", ")...)
	}
	return r
}

func TestEveryCommandInEverySituation(t *testing.T) {
	for _, at := range situations() {
		t.Run(at.name, func(t *testing.T) {
			r := inState(t, at.before)
			seen := 0
			for entry := range strings.SplitSeq(at.commands, ";") {
				name, want, _ := strings.Cut(strings.TrimSpace(entry), " ")
				seen++
				line, effect := strings.CutPrefix(want, "=")
				if !effect {
					before := r.everything()
					out := r.do(r.moveCommands(move1)[name])
					if e := fault.As(out.Err); out.Err == nil || e.Slug != want {
						t.Errorf("%s: %v, want %s", name, out.Err, want)
					}
					if after := r.everything(); after != before {
						t.Errorf("%s was refused and left a trace:\n%s\n%s", name, before, after)
					}
					continue
				}
				other := inState(t, at.before)
				first := other.do(other.moveCommands(move1)[name])
				if got := other.describe(); first.Err != nil || got != line {
					t.Errorf("%s: %s, %v; want %s", name, got, first.Err, line)
				}
				if !strings.HasPrefix(name, "write") { // again: nothing new
					again := other.do(other.moveCommands(move1)[name])
					if got := other.describe(); again.Err != nil || got != line {
						t.Errorf("%s again: %s, %v; want %s", name, got, again.Err, line)
					}
				}
				other.close()
			}
			if seen != len(r.moveCommands(move1)) {
				t.Errorf("%d commands are in the table, there are %d", seen, len(r.moveCommands(move1)))
			}
		})
	}
}

// What a command needs beside a state.
func TestMoveCommandsThatAreWrong(t *testing.T) {
	r := newCell(t)
	no := func(slug string, n raftfsm.Number, body any) {
		t.Helper()
		before := r.everything()
		out := r.do(command(t, n, "", 0, body))
		if e := fault.As(out.Err); out.Err == nil || e.Slug != slug || r.everything() != before {
			t.Errorf("%+v: %v, want %s and no trace", body, out.Err, slug)
		}
	}
	for _, bad := range []cellfsm.MoveRef{{}, {Move: "0", UID: testUID, Planned: planned}, {Move: move1, UID: "../..", Planned: planned}, {Move: move1, UID: testUID}} {
		no("invalid-move", cellfsm.MoveFreezeNumber, cellfsm.MoveFreeze{Of: bad, Epoch: 1})
		no("invalid-move", cellfsm.MoveAbortNumber, cellfsm.MoveAbort{Of: bad, Decision: says(move1, false)})
		no("invalid-move", cellfsm.MoveImportNumber, cellfsm.MoveImport{Of: bad})
	}
	for _, epoch := range []tenant.Epoch{0, 2} {
		no("placement-changed", cellfsm.MoveFreezeNumber, cellfsm.MoveFreeze{Of: of(move1), Epoch: epoch})
		no("placement-changed", cellfsm.MoveStartNumber, cellfsm.MoveStart{Of: of(move1), Epoch: epoch})
	}
	for _, d := range []cellfsm.Decision{{}, says(move2, false), says(move1, true), {Move: move1}} {
		no("wrong-decision", cellfsm.MoveThawNumber, cellfsm.MoveThaw{Of: of(move1), Epoch: 1, Decision: d})
		no("wrong-decision", cellfsm.MoveAbortNumber, cellfsm.MoveAbort{Of: of(move1), Decision: d})
	}
	for _, d := range []cellfsm.Decision{{}, says(move2, true), says(move1, false), {Move: move1, Commit: true}} {
		no("wrong-decision", cellfsm.MoveRetireNumber, cellfsm.MoveRetire{Of: of(move1), Epoch: 1, Decision: d})
		no("wrong-decision", cellfsm.MoveActivateNumber, cellfsm.MoveActivate{Of: of(move1), Epoch: 3, Watermark: staged, Decision: d})
	}

	r = inState(t, "provision, freeze, retire, drop")
	change := func(f func(*cellfsm.MoveImport)) cellfsm.MoveImport {
		body := importing(move2)
		f(&body)
		return body
	}
	no("invalid-move", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Epoch = 2 }))
	no("invalid-move", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Secret = m.Secret[1:] }))
	no("invalid-move", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Tenant = "7" }))
	no("wrong-cell", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Cell = "C" }))
	no("wrong-cell", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.FromKey = testKey }))
	r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(secondU, "T8", 1))
	no("tenant-exists", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Tenant = "t8" }))
	r.play("import 2")
	no("tenant-arriving", cellfsm.MoveImportNumber, change(func(m *cellfsm.MoveImport) { m.Epoch = 4 }))
	no("move-unknown", cellfsm.MoveActivateNumber, cellfsm.MoveActivate{Of: of(move2), Epoch: 4, Watermark: staged, Decision: says(move2, true)})
	no("move-unknown", cellfsm.MoveActivateNumber, cellfsm.MoveActivate{Of: of(move2), Epoch: 3, Decision: says(move2, true)})

	// Epochs never come back: T7 leaves again at epoch 3 and may not come under 3.
	r.play("stage 2", "activate 2")
	leave := cellfsm.MoveRef{Move: move2[:25] + "z", UID: testUID, Planned: planned}
	r.must(cellfsm.MoveFreezeNumber, "", 0, cellfsm.MoveFreeze{Of: leave, Epoch: 3})
	r.must(cellfsm.MoveRetireNumber, "", 0, cellfsm.MoveRetire{Of: leave, Epoch: 3, Decision: says(leave.Move, true)})
	back := importing(move2[:25] + "y")
	no("epoch-used", cellfsm.MoveImportNumber, back)
	r.must(cellfsm.MoveDropNumber, "", 0, cellfsm.MoveDrop{Of: leave, Epoch: 3})
	no("epoch-used", cellfsm.MoveImportNumber, back)
	back.Epoch = 4
	r.must(cellfsm.MoveImportNumber, "", 0, back)
}

// A cell forgets moves, and what comes late is refused all the same.
func TestPrunedMovesStayOver(t *testing.T) {
	r := inState(t, "provision, abort, freeze 2, abort 2")
	prune := func(before int64, limit int) raftfsm.Command {
		return command(t, cellfsm.MovePruneNumber, "", 0, cellfsm.MovePrune{Before: before, Limit: limit})
	}
	r.refused("nothing-to-prune", prune(planned, 10))
	r.refused("invalid-prune", prune(planned+1, 0))
	if more, err := r.space.MovesPrunable(cellfsm.MovePrune{Before: planned + 1}); !more || err != nil {
		t.Error(more, err)
	}
	if got := result[cellfsm.MovesPruned](t, r.do(prune(planned+1, 10))); got.Moves != 1 {
		t.Errorf("pruned %+v: the move that holds the tenant stays", got)
	}
	r.play("thaw 2")
	if got := result[cellfsm.MovesPruned](t, r.do(prune(planned+1, 10))); got.Moves != 1 {
		t.Errorf("pruned %+v", got)
	}
	r.refused("nothing-to-prune", prune(planned+1, 10))
	for _, late := range []string{"start", "freeze", "start 2", "freeze 2"} {
		name, other, _ := strings.Cut(late, " ")
		m := move1
		if other != "" {
			m = move2
		}
		r.refused("move-too-old", r.moveCommands(m)[name])
	}
	r.refused("move-too-old", r.moveCommands(move1)["import"])
	r.refused("move-unknown", r.moveCommands(move1)["activate"])
	r.refused("not-frozen", r.moveCommands(move1)["thaw"])
	r.refused("not-frozen", r.moveCommands(move1)["retire"])
	later := of(move1)
	later.Planned = planned + 1
	r.must(cellfsm.MoveFreezeNumber, "", 0, cellfsm.MoveFreeze{Of: later, Epoch: 1})
}
