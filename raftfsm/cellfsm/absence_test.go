package cellfsm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// uidOf is the n-th tenant's uid; T7 is the first.
func uidOf(n int) tenant.UID {
	return tenant.UID(strings.Repeat("a", 25) + string(rune('a'+n*4)))
}

// cellOf is a replica with n tenants of one customer each.
func cellOf(t *testing.T, n int) *replica {
	t.Helper()
	r := newCell(t)
	for i := 1; i < n; i++ {
		r.must(cellfsm.ProvisionTenantNumber, "", 0, provision(uidOf(i), tenant.ID(fmt.Sprint("T", 7+i)), 1))
	}
	for i := range n {
		r.customers(uidOf(i), 1)
	}
	return r
}

func (r *replica) customers(uid tenant.UID, n int) {
	r.t.Helper()
	for range n {
		r.must(cellfsm.CreateCustomerNumber, uid, 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: strings.Repeat("n", 100)}})
	}
}

func (r *replica) files() []store.FileState {
	r.t.Helper()
	files, err := r.space.Files()
	if err != nil {
		r.t.Fatal(err)
	}
	return files
}

// image copies a folder as it is on disk now: what a crash would leave of it.
func image(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, bad := filepath.Rel(dir, path)
		if err = errors.Join(err, bad); err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if strings.HasSuffix(path, "-shm") {
			return nil // only what processes that use the file agree on
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func (r *replica) absent() (uids []tenant.UID) {
	for _, a := range r.space.Absences() {
		uids = append(uids, a.UID)
	}
	return uids
}

// fetch copies a tenant's file from another replica that is as far.
func (r *replica) fetch(from *replica, uid tenant.UID) error {
	st, err := r.space.Stage(uid)
	if err != nil {
		return err
	}
	f, release, err := from.space.Acquire(string(uid))
	if err != nil {
		return errors.Join(err, st.End())
	}
	defer release()
	if err := f.CopyTo(st.Path()); err != nil {
		return errors.Join(err, st.End())
	}
	staged, err := st.Open()
	if err == nil {
		err = st.Place(staged, staged.Control().Applied)
		err = errors.Join(err, staged.Close())
	}
	return errors.Join(err, st.End())
}

func (r *replica) same(as *replica, uids ...tenant.UID) {
	r.t.Helper()
	for _, uid := range uids {
		got, at := r.digest(uid)
		want, wantAt := as.digest(uid)
		if got != want || at != wantAt {
			r.t.Errorf("%q differs: at %d and %d", uid, at.Applied, wantAt.Applied)
		}
	}
}

// Ten thousand tenants must cost a start and a snapshot nothing.
func TestStartAndSnapshotOpenNoTenantsFile(t *testing.T) {
	r := cellOf(t, 4)
	want := r.files()
	r.close()
	again := openReplica(t, r.dir)
	if err := again.space.Recover(want[:4]); err != nil { // the last one came after the snapshot
		t.Fatal(err)
	}
	got := again.files()
	if again.space.Open() != 0 {
		t.Errorf("%d files were opened", again.space.Open())
	}
	for i, w := range want {
		if i == len(want)-1 {
			w.Index = 5 // as it arrived: replay would have opened it for anything more
		}
		if got[i] != w {
			t.Errorf("lists %+v, not %+v", got[i], w)
		}
	}
}

func TestBadFilesMakeTheirTenantsAbsent(t *testing.T) {
	r := cellOf(t, 5)
	r.customers(uidOf(3), 300)
	files := r.files()
	r.close()
	path := func(n int) string { return filepath.Join(r.dir, "tenants", string(uidOf(n)), "1-0", "tenant.db") }
	older, err := os.ReadFile(path(2)) // everything is closed
	if err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, r.dir)
	again.index = r.index
	again.customers(uidOf(2), 1)
	files[3].Index = again.index
	again.close()
	whole, err := os.ReadFile(path(3))
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(whole); i++ {
		whole[i] ^= 0x55
	}
	if err := errors.Join(os.Remove(path(1)), os.WriteFile(path(2), older, 0o600), os.WriteFile(path(3), whole, 0o600),
		os.WriteFile(path(4), []byte("no database"), 0o600)); err != nil {
		t.Fatal(err)
	}
	last := openReplica(t, r.dir)
	last.index = again.index
	if err := last.space.Recover(files); err != nil {
		t.Fatal(err)
	}
	read := func(n int) error {
		f, release, err := last.space.Acquire(string(uidOf(n)))
		if err != nil {
			return err
		}
		defer release()
		err = f.View(func(c *store.Conn) error {
			_, _, err := cellfsm.ListCustomers(c, tenant.ID(fmt.Sprint("T", 7+n)), cellfsm.CustomerFilter{}, cellfsm.Order{}, 0, 500)
			return err
		})
		if last.space.Noticed(uidOf(n), err) {
			return cellfsm.ErrAbsent.Because(err)
		}
		return err
	}
	for n, reason := range map[int]string{1: "missing", 2: "should be at", 3: "", 4: ""} {
		for range 2 {
			if err := read(n); !errors.Is(err, cellfsm.ErrAbsent) {
				t.Errorf("tenant %d: %v", n, err)
			}
		}
		var got string
		for _, a := range last.space.Absences() {
			if a.UID == uidOf(n) {
				got = a.Reason
			}
		}
		if !strings.Contains(got, reason) {
			t.Errorf("tenant %d: absent because %q, not %q", n, got, reason)
		}
		// Its commands are passed over.
		out := last.do(command(t, cellfsm.CreateCustomerNumber, uidOf(n), 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "x"}}))
		if !errors.Is(out.Err, raftfsm.ErrUnknown) {
			t.Errorf("tenant %d: a command is told %v", n, out.Err)
		}
	}
	last.customers(uidOf(0), 1)
	select {
	case err := <-last.space.Failed():
		t.Errorf("the node was to stop: %v", err)
	default:
	}
	last.close()
	if final := openReplica(t, r.dir); len(final.absent()) != 4 {
		t.Errorf("after a restart %v are absent", final.absent())
	}
}

func TestMarkAbsent(t *testing.T) {
	r := cellOf(t, 2)
	if err := r.space.MarkAbsent("zaaaaaaaaaaaaaaaaaaaaaaaaa", "x"); fault.Of(err) != fault.Moved {
		t.Errorf("marked a tenant that is not there: %v", err)
	}
	for range 2 {
		if err := r.space.MarkAbsent(testUID, "an outlier"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-r.space.AbsenceTold():
	default:
		t.Error("nobody was told")
	}
	if all := r.space.Absences(); len(all) != 1 || all[0].UID != testUID || all[0].Reason != "an outlier" {
		t.Errorf("%+v", all)
	}
	if _, _, err := r.space.Acquire(string(testUID)); !errors.Is(err, cellfsm.ErrAbsent) {
		t.Errorf("acquired: %v", err)
	}
	for _, f := range r.files() {
		if f.Absent != (f.Target == string(testUID)) {
			t.Errorf("listed as %+v", f)
		}
	}
	if err := r.space.DropAbsence(testUID); err == nil || r.space.Absent() != 1 {
		t.Error("the absence of a tenant that the cell stores was dropped")
	}
	if err := r.space.Damaged("unknown", errStep); err != nil {
		t.Fatal(err)
	}
	if err := r.space.DropAbsence("unknown"); err != nil || r.space.Absent() != 1 {
		t.Errorf("the absence of a tenant that the cell does not store: %v", err)
	}
}

// A fetcher may look at an absence before the cell.db is in place that has its
// tenant. That tenant is absent all the same.
func TestAbsenceStaysWhileASnapshotIsInstalled(t *testing.T) {
	r, _, in := late(t)
	r.space.AtStep(func(step string) error {
		if step == "recorded" {
			if _, err := r.space.Stage(uidOf(3)); !errors.Is(err, cellfsm.ErrNotHere) {
				t.Errorf("staged: %v", err)
			}
			if err := r.space.DropAbsence(uidOf(3)); err == nil {
				t.Error("dropped")
			}
		}
		return nil
	})
	if err := r.space.Install(in); err != nil {
		t.Fatal(err)
	}
	if err := r.space.DropAbsence(uidOf(3)); err == nil || !r.space.IsAbsent(uidOf(3)) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLostLocalFileIsRefused(t *testing.T) {
	r := newCell(t)
	r.close()
	if err := store.Remove(filepath.Join(r.dir, "local.db")); err != nil {
		t.Fatal(err)
	}
	if space, err := cellfsm.OpenSpace(r.dir, 8, nil, nil, testLog()); err == nil || !strings.Contains(err.Error(), "add a new one") {
		t.Errorf("started: %v", errors.Join(err, space.Close()))
	}
}

// late is a replica that has missed something, and the sender of a snapshot: T7
// and T8 are equal, T9 is behind, T10 has arrived.
func late(t *testing.T) (r, sender *replica, in raftfsm.Installation) {
	sender = cellOf(t, 3)
	sender.close()
	r = openReplica(t, image(t, sender.dir))
	r.index = sender.index
	sender = openReplica(t, sender.dir)
	sender.index = r.index
	if err := errors.Join(r.space.Recover(r.files()), sender.space.Recover(sender.files())); err != nil {
		t.Fatal(err)
	}
	sender.customers(uidOf(2), 20)
	sender.must(cellfsm.ProvisionTenantNumber, "", 0, provision(uidOf(3), "T10", 1))
	sender.customers(uidOf(0), 1)
	r.index = sender.index - 1
	r.customers(uidOf(0), 1) // open, and not committed yet
	return r, sender, sender.installation(sender.index)
}

func (r *replica) installation(index uint64) raftfsm.Installation {
	r.t.Helper()
	in := raftfsm.Installation{ID: "a sending", Index: index, Files: r.files(), Own: filepath.Join(r.t.TempDir(), "own.db")}
	f, release, err := r.space.Acquire("")
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	if err := f.CopyTo(in.Own); err != nil {
		r.t.Fatal(err)
	}
	return in
}

func TestInstallMarksWhatIsBehindAndFetchesNothing(t *testing.T) {
	r, sender, in := late(t)
	if whole, err := r.space.Installed(in); err != nil || whole {
		t.Fatalf("installed before: %v", err)
	}
	if err := r.space.Install(in); err != nil {
		t.Fatal(err)
	}
	if whole, err := r.space.Installed(in); err != nil || !whole {
		t.Fatalf("not installed: %v", err)
	}
	if got := fmt.Sprint(r.absent()); got != fmt.Sprint([]tenant.UID{uidOf(2), uidOf(3)}) {
		t.Fatalf("absent: %v", got)
	}
	r.same(sender, "", uidOf(0), uidOf(1))
	r.close()
	r = openReplica(t, r.dir)
	if err := r.space.Recover(in.Files); err != nil {
		t.Fatal(err)
	}
	for _, uid := range r.absent() {
		if err := r.fetch(sender, uid); err != nil {
			t.Fatal(err)
		}
	}
	r.same(sender, "", uidOf(0), uidOf(1), uidOf(2), uidOf(3))
	for i := range 4 {
		all, err := os.ReadDir(filepath.Join(r.dir, "tenants", string(uidOf(i))))
		if err != nil || len(all) != 1 {
			t.Errorf("tenant %d has the folders %v, %v", i, all, err)
		}
	}
	r.close()
	r = openReplica(t, r.dir)
	if err := r.space.Recover(in.Files); err != nil {
		t.Fatal(err)
	}
	r.same(sender, "", uidOf(0), uidOf(1), uidOf(2), uidOf(3))
	if len(r.absent()) != 0 {
		t.Errorf("absent after a restart: %v", r.absent())
	}
}

var errStep = errors.New("ended by the test")

// crashes runs do on a replica again and again, ended at the n-th step for every
// n, and has check look at what each crash leaves.
func crashes(t *testing.T, do func(*testing.T) (*replica, func() error), check func(*testing.T, string)) {
	for n, done := 0, false; !done; n++ {
		t.Run(fmt.Sprint("step ", n), func(t *testing.T) {
			r, run := do(t)
			seen, image1 := 0, ""
			r.space.AtStep(func(step string) error {
				if seen++; seen-1 != n {
					return nil
				}
				t.Log("ended at: ", step)
				image1 = image(t, r.dir)
				return errStep
			})
			if err := run(); err == nil {
				done = true
				image1 = image(t, r.dir)
			} else if !errors.Is(err, errStep) {
				t.Fatal(err)
			}
			check(t, image1)
			if !done { // an error in place of a crash: the node stops and starts again
				r.close()
				check(t, r.dir)
			}
		})
	}
}

func TestCrashAtEveryStepOfAnInstallation(t *testing.T) {
	var sender *replica
	var in raftfsm.Installation
	var own []byte
	crashes(t, func(t *testing.T) (r *replica, run func() error) {
		r, sender, in = late(t)
		var err error
		if own, err = os.ReadFile(in.Own); err != nil {
			t.Fatal(err)
		}
		return r, func() error { return r.space.Install(in) }
	}, func(t *testing.T, dir string) {
		for _, between := range []bool{false, true} {
			r := openReplica(t, image(t, dir))
			if between { // cell.db has gone and the new one is not there yet
				r.close()
				if err := store.Remove(filepath.Join(r.dir, "cell.db")); err != nil {
					t.Fatal(err)
				}
				r = openReplica(t, r.dir)
			}
			whole, err := r.space.Installed(in)
			if err == nil && !whole {
				in.Own = filepath.Join(t.TempDir(), "own.db")
				err = errors.Join(os.WriteFile(in.Own, own, 0o600), r.space.Install(in))
			}
			if err = errors.Join(err, r.space.Recover(in.Files)); err != nil {
				t.Fatal(err)
			}
			if between && !strings.Contains(fmt.Sprint(r.absent()), string(uidOf(2))) {
				t.Errorf("without a cell.db %v are absent", r.absent())
			}
			for _, uid := range r.absent() {
				if err := r.fetch(sender, uid); err != nil {
					t.Fatal(err)
				}
			}
			r.same(sender, "", uidOf(0), uidOf(1), uidOf(2), uidOf(3))
			r.close()
		}
	})
}

func TestCrashAtEveryStepOfASwitch(t *testing.T) {
	var sender *replica
	crashes(t, func(t *testing.T) (*replica, func() error) {
		sender = cellOf(t, 2)
		sender.close()
		r := openReplica(t, image(t, sender.dir))
		sender = openReplica(t, sender.dir)
		if err := r.space.MarkAbsent(testUID, "a test"); err != nil {
			t.Fatal(err)
		}
		return r, func() error { return r.fetch(sender, testUID) }
	}, func(t *testing.T, dir string) {
		r := openReplica(t, image(t, dir))
		if r.space.Absent() > 0 {
			if err := r.fetch(sender, testUID); err != nil {
				t.Fatal(err)
			}
		}
		r.same(sender, "", testUID, uidOf(1))
		all, err := os.ReadDir(filepath.Join(r.dir, "tenants", string(testUID)))
		if err != nil || len(all) != 1 {
			t.Errorf("folders %v, %v", all, err)
		}
	})
}

// What is staged is looked at before it counts.
func TestStagedFileIsChecked(t *testing.T) {
	r := cellOf(t, 2)
	if err := r.space.MarkAbsent(testUID, "a test"); err != nil {
		t.Fatal(err)
	}
	st, err := r.space.Stage(testUID)
	if err != nil {
		t.Fatal(err)
	}
	f, release, err := r.space.Acquire(string(uidOf(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := f.CopyTo(st.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Open(); err == nil || !strings.Contains(err.Error(), "belongs to T8") {
		t.Errorf("another tenant's file was taken: %v", err)
	}
	if err := st.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(st.Path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
