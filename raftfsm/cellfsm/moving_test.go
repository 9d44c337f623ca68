package cellfsm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

func keyed(t *testing.T, key string, epoch tenant.Epoch) raftfsm.Command {
	c := keyedCustomer(t, key, 0)
	c.Epoch = uint64(epoch)
	return c
}

// otherCell is a replica of the cell that T7 moves to, with a tenant of its own.
func otherCell(t *testing.T) *replica {
	t.Helper()
	r := openReplica(t, t.TempDir())
	r.index = 1000 // indexes of one cell mean nothing in another
	r.must(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C5", Key: elseKey})
	own := provision(secondU, "T8", 1)
	own.Cell = elseKey
	r.must(cellfsm.ProvisionTenantNumber, "", 0, own)
	return r
}

// move brings T7 from one replica to another, whose cells they are, as the mover
// would: import, copy, freeze, activate. atFreeze runs before the freeze.
func (r *replica) move(to *replica, of cellfsm.MoveRef, from tenant.Epoch, atFreeze func()) (w tenant.Watermark) {
	r.t.Helper()
	row, err := r.space.Tenant(testUID)
	if err != nil {
		r.t.Fatal(err)
	}
	fromKey, err := r.space.Key()
	if err != nil {
		r.t.Fatal(err)
	}
	toKey, err := to.space.Key()
	if err != nil {
		r.t.Fatal(err)
	}
	to.must(cellfsm.MoveImportNumber, "", 0, cellfsm.MoveImport{Of: of, Tenant: testID, Epoch: from + 1, FromEpoch: from, FromKey: fromKey, Cell: toKey, Secret: row.Secret})
	r.must(cellfsm.MoveStartNumber, "", 0, cellfsm.MoveStart{Of: of, Epoch: from})
	if atFreeze != nil {
		atFreeze()
	}
	frozen := result[cellfsm.Moved](r.t, r.must(cellfsm.MoveFreezeNumber, "", 0, cellfsm.MoveFreeze{Of: of, Epoch: from}))
	w = tenant.Watermark{Index: frozen.Index, Sequence: frozen.Sequence}
	r.copyTo(to, of.Move)
	if err := to.space.CheckArrival(testUID, of.Move, w); err != nil {
		r.t.Fatal(err)
	}
	to.must(cellfsm.MoveActivateNumber, "", 0, cellfsm.MoveActivate{Of: of, Epoch: from + 1, Watermark: w, Decision: says(of.Move, true)})
	r.must(cellfsm.MoveRetireNumber, "", 0, cellfsm.MoveRetire{Of: of, Epoch: from, Decision: says(of.Move, true)})
	return w
}

func (r *replica) copyTo(to *replica, m tenant.MoveID) {
	r.t.Helper()
	path, err := to.space.PrepareArrival(testUID, m)
	if err != nil {
		r.t.Fatal(err)
	}
	f, release, err := r.space.Acquire(string(testUID))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	if err := f.CopyTo(path); err != nil {
		r.t.Fatal(err)
	}
}

// A writer whose transaction is open when the freeze comes is part of the watermark,
// on disk, and at the destination, where its retry is answered as it was.
func TestWriterBeforeTheFreezeIsInTheWatermark(t *testing.T) {
	r, to := newCell(t), otherCell(t)
	var before cellfsm.Customer
	w := r.move(to, of(move1), 1, func() { before = result[cellfsm.Customer](t, r.do(keyed(t, "k", 1))) })
	if w.Index != r.index-1 || w.Sequence != 1 { // the freeze's own entry, and the writer
		t.Errorf("watermark %+v", w)
	}
	out := to.do(keyed(t, "k", 2))
	if got := result[cellfsm.Customer](t, out); !out.Replayed || got != before {
		t.Errorf("the retry at the destination: %+v, %+v", out, got)
	}
	if to.count(testUID, "customer") != 1 || to.count(testUID, "copy_start") != 0 {
		t.Error("more than the writer's one customer, or the source's copy, is there")
	}
	_, ctl := to.digest(testUID)
	want := store.Control{UID: testUID, Tenant: testID, CellKey: elseKey, Epoch: 2, State: tenant.Active, Move: move1, Applied: to.index - 1, Sequence: 1, LastTime: ctl.LastTime}
	if ctl != want {
		t.Errorf("control row %+v, want %+v", ctl, want)
	}
}

// A stale writer behind the freeze changes nothing, and its retry under the same key
// lands once at the destination.
func TestWriterAfterTheFreezeChangesNothing(t *testing.T) {
	r, to := newCell(t), otherCell(t)
	r.must(cellfsm.MoveFreezeNumber, "", 0, cellfsm.MoveFreeze{Of: of(move1), Epoch: 1})
	sum, ctl := r.digest(testUID)
	r.refused("tenant-frozen", keyed(t, "k", 1))
	w := r.move2(to)
	if now, at := r.digest(testUID); w.Sequence != 0 || at.Applied == ctl.Applied || at.State != tenant.Retired || now == sum {
		t.Errorf("%+v at %+v", at, w)
	}
	r.refused("placement-changed", keyed(t, "k", 1))
	first := to.do(keyed(t, "k", 2))
	again := to.do(keyed(t, "k", 2))
	if first.Err != nil || first.Replayed || !again.Replayed || to.count(testUID, "customer") != 1 || r.count(testUID, "customer") != 0 {
		t.Errorf("%+v, then %+v", first, again)
	}
	to.refused("placement-changed", keyed(t, "late", 1))
}

// move2 is move of a tenant that is frozen already: the freeze is repeated.
func (r *replica) move2(to *replica) tenant.Watermark {
	r.t.Helper()
	row, err := r.space.Tenant(testUID)
	if err != nil {
		r.t.Fatal(err)
	}
	to.must(cellfsm.MoveImportNumber, "", 0, cellfsm.MoveImport{Of: of(move1), Tenant: testID, Epoch: 2, FromEpoch: 1, FromKey: testKey, Cell: elseKey, Secret: row.Secret})
	again := result[cellfsm.Moved](r.t, r.must(cellfsm.MoveFreezeNumber, "", 0, cellfsm.MoveFreeze{Of: of(move1), Epoch: 1}))
	w := tenant.Watermark{Index: again.Index, Sequence: again.Sequence}
	r.copyTo(to, move1)
	to.must(cellfsm.MoveActivateNumber, "", 0, cellfsm.MoveActivate{Of: of(move1), Epoch: 2, Watermark: w, Decision: says(move1, true)})
	r.must(cellfsm.MoveRetireNumber, "", 0, cellfsm.MoveRetire{Of: of(move1), Epoch: 1, Decision: says(move1, true)})
	return w
}

// There and back again: the retired copy blocks nothing and goes when the tenant
// arrives; prune waits for a member's first write.
func TestThereAndBackAgain(t *testing.T) {
	r, to := newCell(t), otherCell(t)
	r.do(keyed(t, "a", 1))
	r.move(to, of(move1), 1, nil)
	to.do(keyed(t, "b", 2))
	if err := r.space.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := r.folders(testUID); !slices.Equal(got, []string{"1-0"}) {
		t.Errorf("the retired copy was swept: %v", got)
	}
	old, release, err := r.space.Acquire(string(testUID)) // somebody still reads it
	if err != nil {
		t.Fatal(err)
	}
	to.move(r, of(move2), 2, nil)
	if p := r.space.Presence(testUID); p != nil {
		t.Errorf("the retired copy is present: %+v", p.Control())
	}
	if r.count(testUID, "customer") != 2 || old.Control().State != tenant.Retired {
		t.Error("the tenant did not come back with what it had")
	}
	if p := r.space.Presence(testUID); p == nil || p.Control().State != tenant.Active || p.Control().Epoch != 3 {
		t.Errorf("presence %+v", p)
	}
	release()
	if err := r.space.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := r.folders(testUID); !slices.Equal(got, []string{"3-" + string(move2)}) {
		t.Errorf("folders %v", got)
	}
	body := cellfsm.Prune{Keys: 1 << 60, Audit: 1 << 60, Limit: 10}
	prune := command(t, cellfsm.PruneNumber, testUID, 3, body)
	if more, err := r.space.Prunable(testUID, body); more || err != nil {
		t.Errorf("there is something to prune before a member has written: %v", err)
	}
	r.refused("tenant-unsettled", prune)
	if out := r.do(keyed(t, "c", 3)); out.Err != nil {
		t.Fatal(out.Err)
	}
	if more, err := r.space.Prunable(testUID, body); !more || err != nil {
		t.Errorf("there is nothing to prune: %v", err)
	}
	if out := r.do(prune); out.Err != nil {
		t.Error(out.Err)
	}
	// At the other cell the copy is dropped, and nothing of it is left.
	to.must(cellfsm.MoveDropNumber, "", 0, cellfsm.MoveDrop{Of: of(move2), Epoch: 2})
	to.refused("placement-changed", keyed(t, "d", 2))
	if _, _, err := to.space.Acquire(string(testUID)); !errors.Is(err, cellfsm.ErrNotHere) {
		t.Errorf("acquired a dropped tenant: %v", err)
	}
	if err := to.space.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := to.folders(testUID); len(got) != 0 || to.count(secondU, "customer") != 0 {
		t.Errorf("folders %v", got)
	}
}

func (r *replica) folders(uid tenant.UID) (names []string) {
	r.t.Helper()
	dirs, err := os.ReadDir(filepath.Join(r.dir, "tenants", string(uid)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	return names
}

// An aborted arrival leaves nothing that is served, and nothing that blocks the next.
func TestAbortedArrivalIsSwept(t *testing.T) {
	r := inState(t, "import, stage, abort, import 2")
	path, err := r.space.PrepareArrival(testUID, move2)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "tenants", string(testUID), "9-nobody"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.space.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := r.folders(testUID); !slices.Equal(got, []string{filepath.Base(filepath.Dir(path))}) {
		t.Errorf("folders %v", got)
	}
	if _, err := r.space.PrepareArrival(testUID, move1); !errors.Is(err, cellfsm.ErrNoArrival) {
		t.Errorf("the aborted arrival may be staged: %v", err)
	}
	r.play("stage 2", "activate 2")
}

// A replica without the staged file, or with another one, lacks the tenant from its
// activation on, decides like the others, and fetches it from them.
func TestReplicaWithoutTheStagedFile(t *testing.T) {
	whole := inState(t, "import, stage, activate, write3")
	for name, stage := range map[string]func(r *replica, path string){
		"nothing": func(*replica, string) {},
		"no file": func(r *replica, path string) {
			if err := os.WriteFile(path, []byte("no database"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"another state": func(r *replica, path string) {
			err := store.Create(path, cellfsm.TenantSchema(), store.Control{
				UID: testUID, Tenant: testID, CellKey: elseKey, Epoch: 2, State: tenant.Frozen, Move: move1, Applied: staged.Index - 1, Sequence: staged.Sequence,
			}, 5)
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := inState(t, "import")
			path, err := r.space.PrepareArrival(testUID, move1)
			if err != nil {
				t.Fatal(err)
			}
			stage(r, path)
			if out := result[cellfsm.Moved](t, r.do(r.moveCommands(move1)["activate"])); !out.Absent || out.Index != r.index {
				t.Errorf("%+v", out)
			}
			if a := r.space.Absences(); len(a) != 1 || a[0].UID != testUID || a[0].Min != r.index {
				t.Fatalf("absences %+v", a)
			}
			if out := r.do(r.moveCommands(move1)["write3"]); !errors.Is(out.Err, raftfsm.ErrUnknown) {
				t.Errorf("%v", out.Err)
			}
			if err := r.fetch(whole, testUID); err != nil {
				t.Fatal(err)
			}
			r.same(whole, "", testUID)
			if err := r.space.Sweep(); err != nil {
				t.Fatal(err)
			}
			if got := r.folders(testUID); len(got) != 1 {
				t.Errorf("folders %v", got)
			}
			// After a restart too.
			r.close()
			again := openReplica(t, r.dir)
			if err := again.space.Sweep(); err != nil {
				t.Fatal(err)
			}
			again.same(whole, "", testUID)
		})
	}
}

// An absent replica decides about a move like the others. A copy that was sent
// before the freeze does not count: nothing would tell it of the freeze.
func TestAbsentReplicaDecidesAlike(t *testing.T) {
	whole, lame := cellOf(t, 2), cellOf(t, 2)
	if err := lame.space.MarkAbsent(testUID, "a test"); err != nil {
		t.Fatal(err)
	}
	st, err := lame.space.Stage(testUID)
	if err != nil {
		t.Fatal(err)
	}
	f, release, err := whole.space.Acquire(string(testUID))
	if err != nil {
		t.Fatal(err)
	}
	asOf := whole.index
	if err := f.CopyTo(st.Path()); err != nil {
		t.Fatal(err)
	}
	release()
	for _, r := range []*replica{whole, lame} {
		r.play("freeze", "thaw", "freeze 2")
	}
	if out := result[cellfsm.Moved](t, lame.play("freeze 2")); !out.Absent || out.Index == 0 {
		t.Errorf("%+v", out)
	}
	whole.play("freeze 2")
	early, err := st.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Place(early, asOf); err == nil || !strings.Contains(err.Error(), "a move has changed") {
		t.Errorf("a copy from before the freeze was placed: %v", err)
	}
	if err := st.End(); err != nil {
		t.Fatal(err)
	}
	if err := lame.fetch(whole, testUID); err != nil {
		t.Fatal(err)
	}
	lame.same(whole, "", testUID)
	lame.refused("tenant-frozen", keyed(t, "k", 1))
}

// scripts are logs of one cell in which every command of a move has its effect.
func scripts() map[string][]string {
	return map[string][]string{
		"source": {"provision", "write", "start", "write", "freeze", "write", "retire", "write", "drop", "write"},
		"abort":  {"provision", "write", "freeze", "write", "abort", "thaw", "write", "freeze 2", "write"},
		"arrive": {"import", "stage", "activate", "write3", "write3"},
		"return": {"provision", "write", "freeze 2", "retire 2", "import", "stage", "activate", "write3"},
	}
}

// playAny plays steps of which some are refused.
func (r *replica) playAny(step string) {
	r.t.Helper()
	if name, other, _ := strings.Cut(step, " "); name == "write" || name == "write3" {
		r.do(r.moveCommands(move1)[name])
	} else {
		r.play(strings.TrimSpace(name + " " + other))
	}
}

func (r *replica) replay(log []raftfsm.Command) {
	r.t.Helper()
	for i, c := range log {
		if _, err := r.apply.Apply(uint64(i+1), c); err != nil {
			r.t.Fatal(err)
		}
	}
	r.index = uint64(len(log))
}

// Wherever a crash finds cell.db and the tenant's file, the log makes the same of
// them. A file may be ahead of cell.db by any number of entries; cell.db is ahead of
// the file by none of its own, since the file is durable first.
func TestCrashBetweenTheFilesOfAMove(t *testing.T) {
	for name, script := range scripts() {
		t.Run(name, func(t *testing.T) {
			r := inState(t, "")
			images, least := []string{image(t, r.dir)}, 0
			r.space.AtStep(func(string) error { // the file has the entry, cell.db does not
				images = append(images, image(t, r.dir))
				return nil
			})
			for _, step := range script {
				r.playAny(step)
				images = append(images, image(t, r.dir))
				if step == "stage" { // it is not in the log
					least = len(images) - 1
				}
			}
			for i, own := range images {
				for j, files := range images[i:] {
					if i+j < least || j > 1 && i+j+1 != len(images) {
						continue // the next state, and the last of all
					}
					again := openReplica(t, mix(t, own, files))
					again.replay(r.log)
					if got, want := again.describe(), r.describe(); got != want {
						t.Fatalf("cell.db of %d, files of %d: %s, want %s", i, i+j, got, want)
					}
					again.same(r, "")
					if _, err := r.space.Tenant(testUID); err == nil {
						again.same(r, testUID)
					}
					again.close()
				}
			}
		})
	}
}

// mix is the image of a replica whose cell.db is older than its other files.
func mix(t *testing.T, own, files string) string {
	t.Helper()
	to := image(t, files)
	for _, suffix := range []string{"", "-wal"} {
		name := "cell.db" + suffix
		if err := os.Remove(filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(own, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// A local failure between the two files stops the node; the next start ends equal.
func TestFailureBetweenTheFilesOfAMove(t *testing.T) {
	for _, c := range []struct{ before, last string }{{"provision", "start"}, {"provision, write", "freeze"}, {"provision, freeze", "thaw"}, {"provision, freeze", "retire"}, {"import, stage", "activate"}} {
		r, want := inState(t, c.before), inState(t, c.before+", "+c.last)
		r.space.AtStep(func(string) error { return errStep })
		log := append(slices.Clone(r.log), want.log[len(want.log)-1])
		if _, err := r.apply.Apply(r.index+1, log[len(log)-1]); !errors.Is(err, errStep) {
			t.Fatalf("%s: %v", c.last, err)
		}
		r.close()
		again := openReplica(t, r.dir)
		again.replay(log)
		again.same(want, "", testUID)
		again.close()
	}
}

// What is told of a tenant follows its state at once.
func TestAdmissionFollowsTheState(t *testing.T) {
	r := newCell(t)
	admitted := func() string {
		p := r.space.Presence(testUID)
		if p == nil {
			f, release, err := r.space.Acquire(string(testUID))
			if err != nil {
				return fault.As(err).Slug
			}
			defer release()
			_ = f
			p = r.space.Presence(testUID)
		}
		answer := func(err error) string {
			if err != nil {
				return fault.As(err).Slug
			}
			return "yes"
		}
		return fmt.Sprint(answer(cellfsm.Admit(p.Control(), testKey, 1)), " ", answer(cellfsm.AdmitStale(p.Control(), testKey, 1)))
	}
	for _, c := range []struct{ step, want string }{
		{"write", "yes yes"}, {"freeze", "tenant-frozen yes"}, {"thaw", "yes yes"},
		{"freeze 2", "tenant-frozen yes"}, {"retire 2", "placement-changed placement-changed"}, {"drop 2", "placement-changed"},
	} {
		r.play(c.step)
		if got := admitted(); got != c.want {
			t.Errorf("after %s: %s, want %s", c.step, got, c.want)
		}
	}
}
