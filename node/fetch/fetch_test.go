package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/raftfsm/mtls"
	"celld/store"
	"celld/store/room"
	"celld/store/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key = tenant.CellKey("CELLKEY")
	uid = tenant.UID("aaaaaaaaaaaaaaaaaaaaaaaaaa")
)

// replica is a node's files, with commands applied to them by the real steps.
type replica struct {
	t     testing.TB
	dir   string
	space *cellfsm.Space
	apply *raftfsm.Applier
	index uint64
}

func openReplica(t testing.TB, dir string) *replica {
	t.Helper()
	space, err := cellfsm.OpenSpace(dir, 8, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	return &replica{t: t, dir: dir, space: space, apply: raftfsm.NewApplier(cellfsm.Commands(space), space.Guard, space)}
}

func (r *replica) do(n raftfsm.Number, target string, epoch uint64, body any) {
	r.t.Helper()
	c, err := raftfsm.NewCommand(n, target, body)
	if err != nil {
		r.t.Fatal(err)
	}
	c.Epoch, c.At, c.Actor = epoch, 1, "U7"
	r.index++
	out, err := r.apply.Apply(r.index, c)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// pair is two replicas that are equal, in whose second T7 is absent.
func pair(t testing.TB, customers int) (has, lacks *replica) {
	t.Helper()
	build := func() *replica {
		r := openReplica(t, t.TempDir())
		r.do(cellfsm.InitCellNumber, "", 0, cellfsm.InitCell{Name: "C2", Key: key})
		r.do(cellfsm.ProvisionTenantNumber, "", 0, cellfsm.ProvisionTenant{UID: uid, Tenant: "T7", Epoch: 1, Cell: key, Secret: bytes.Repeat([]byte{7}, 32)})
		return r
	}
	has, lacks = build(), build()
	for range customers {
		has.do(cellfsm.CreateCustomerNumber, string(uid), 1, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: strings.Repeat("n", 150)}})
	}
	if err := lacks.space.MarkAbsent(uid, "a test"); err != nil {
		t.Fatal(err)
	}
	return has, lacks
}

func (r *replica) digest() string {
	r.t.Helper()
	f, release, err := r.space.Acquire(string(uid))
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	sum, _, err := f.Digest(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum[:8])
}

// log is a Group without a log: what is fetched is as far as it gets.
type log struct {
	floor  uint64
	ready  atomic.Bool
	leads  atomic.Bool
	to     atomic.Pointer[string]
	behind atomic.Int32 // how many copies are still refused as too old
}

func (l *log) Floor() uint64 { return l.floor }

func (l *log) CatchUp(_ context.Context, _ string, _ *store.File, from uint64, place func() error) error {
	if l.behind.Add(-1) >= 0 || from < l.floor {
		return raftfsm.ErrTooOld
	}
	return place()
}

func (l *log) Ready() bool { return l.ready.Load() }

func (l *log) IsLeader() bool { return l.leads.Load() }

func (l *log) TransferTo(_ context.Context, id string) error {
	l.to.Store(&id)
	l.leads.Store(false)
	return nil
}

// serve has a replica's files served, and returns the peer; spoil may change what
// comes from it.
func serve(t testing.TB, r *replica, name string, spoil func(io.Reader) io.Reader) Peer {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(identity string) *mtls.PKI {
		pki, err := ca.Issue(identity, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return pki
	}
	s := httptest.NewUnstartedServer(NewServer(ServerConfig{
		Cell: "C2", Space: r.space, Applied: func() uint64 { return r.index }, Logger: slog.New(slog.DiscardHandler),
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Listener = tls.NewListener(s.Listener, mtls.ServerConfig(issue(mtls.Node("C2", name)), "http/1.1"))
	s.Start()
	t.Cleanup(s.Close)
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := tls.Dialer{Config: mtls.ClientConfig(issue(mtls.Node("C2", "me")), mtls.Node("C2", name), "http/1.1")}
		return d.DialContext(ctx, network, s.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return Peer{
		ID: name, Name: "C2/" + name, Voter: true, Client: &http.Client{Transport: spoiling{transport, spoil}},
		Whole: func(context.Context) (bool, error) { return r.space.Absent() == 0, nil },
	}
}

type spoiling struct {
	http.RoundTripper
	spoil func(io.Reader) io.Reader
}

func (s spoiling) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil && s.spoil != nil && resp.StatusCode == http.StatusOK {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{s.spoil(resp.Body), resp.Body}
	}
	return resp, err
}

// run runs a fetcher until its replica lacks nothing.
func run(t testing.TB, r *replica, group Group, peers ...Peer) {
	t.Helper()
	f := New(Config{
		Space: r.space, Group: group, Peers: func() ([]Peer, error) { return peers, nil }, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	end := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for r.space.Absent() > 0 {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("still absent")
		}
	}
}

func TestFetch(t *testing.T) {
	has, lacks := pair(t, 50)
	group := new(log)
	group.leads.Store(true)
	group.behind.Store(1) // the first copy comes too late
	run(t, lacks, group, serve(t, has, "n2", nil))
	if lacks.digest() != has.digest() {
		t.Error("what was fetched differs")
	}
}

// What would use up the disk's reserve is not taken in, and leaves nothing.
func TestFetchKeepsTheReserve(t *testing.T) {
	has, lacks := pair(t, 50)
	var free atomic.Uint64
	disk, err := room.Open(room.Config{Dir: lacks.dir, Reserve: 4000, Usage: func(string) (room.Usage, error) {
		return room.Usage{Free: free.Load(), Total: 1 << 30}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disk.Close)
	peer := serve(t, has, "n2", nil)
	f := New(Config{
		Space: lacks.space, Group: new(log), Peers: func() ([]Peer, error) { return []Peer{peer}, nil }, Room: disk, Logger: slog.New(slog.DiscardHandler),
	})
	for _, step := range []struct {
		free uint64
		full bool
	}{{0, true}, {3000, true}, {20_000, true}, {10 << 20, false}} { // the file is larger than 16,000 bytes
		free.Store(step.free)
		disk.Look()
		err := f.fetch(t.Context(), lacks.space.Absences()[0])
		if errors.Is(err, room.ErrFull) != step.full || !step.full && err != nil {
			t.Errorf("with %d bytes free: %v", step.free, err)
		}
		if all, err := os.ReadDir(filepath.Join(lacks.dir, "tenants", string(uid))); err != nil || len(all) != 1 {
			t.Errorf("with %d bytes free there are %v, %v", step.free, all, err)
		}
	}
	if lacks.digest() != has.digest() {
		t.Error("what was fetched differs")
	}
}

// Who lacks the file, is behind, or sends something else is passed over.
func TestOtherPeersAreAsked(t *testing.T) {
	has, lacks := pair(t, 50)
	_, absent := pair(t, 0)
	lagging := openReplica(t, t.TempDir())
	gone := openReplica(t, t.TempDir())
	gone.index = 1000
	at := 0
	flip := func(r io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			n, err := r.Read(p)
			if at += n; at > 20_000 && n > 0 {
				p[n-1] ^= 1
			}
			return n, err
		})
	}
	cut := func(r io.Reader) io.Reader { return io.LimitReader(r, 30_000) }
	run(t, lacks, &log{floor: 2},
		serve(t, absent, "n2", nil), serve(t, lagging, "n3", nil), serve(t, gone, "n4", nil),
		serve(t, has, "n5", flip), serve(t, has, "n6", cut), serve(t, has, "n7", nil))
	if lacks.digest() != has.digest() {
		t.Error("what was fetched differs")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Each of them alone is refused, and leaves nothing behind.
func TestWhatIsRefused(t *testing.T) {
	has, lacks := pair(t, 50)
	_, absent := pair(t, 0)
	lagging := openReplica(t, t.TempDir())
	gone := openReplica(t, t.TempDir())
	gone.index = 1000
	cut := func(r io.Reader) io.Reader { return io.LimitReader(r, 30_000) }
	for want, peer := range map[string]Peer{
		"tenant-absent": serve(t, absent, "n2", nil), "behind": serve(t, lagging, "n3", nil),
		"no such tenant at index 1000": serve(t, gone, "n4", nil), "unexpected EOF": serve(t, has, "n6", cut),
	} {
		f := New(Config{Space: lacks.space, Group: &log{floor: 2}, Peers: func() ([]Peer, error) { return []Peer{peer}, nil }, Logger: slog.New(slog.DiscardHandler)})
		if err := f.fetch(t.Context(), lacks.space.Absences()[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	f := New(Config{Space: lacks.space, Group: new(log), Peers: func() ([]Peer, error) { return nil, nil }, Logger: slog.New(slog.DiscardHandler)})
	if err := f.fetch(t.Context(), lacks.space.Absences()[0]); !errors.Is(err, errAlone) {
		t.Errorf("alone: %v", err)
	}
	if lacks.space.Absent() != 1 {
		t.Error("no longer absent")
	}
	var folders []string
	_ = filepath.WalkDir(filepath.Dir(filepath.Dir(staged(t, lacks))), func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() && strings.Contains(d.Name(), "-0.") {
			folders = append(folders, path)
		}
		return nil
	})
	if len(folders) != 0 {
		t.Errorf("left behind: %v", folders)
	}
}

// A tenant that cell.db does not have may be in entries that have yet to be applied.
func TestAbsenceOfAnUnknownTenant(t *testing.T) {
	has, lacks := pair(t, 0)
	if err := errors.Join(lacks.space.Close(), store.Remove(filepath.Join(lacks.dir, "cell.db"))); err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, lacks.dir) // its cell.db is as a power cut may leave it
	group := new(log)
	peer := serve(t, has, "n2", nil)
	f := New(Config{Space: again.space, Group: group, Peers: func() ([]Peer, error) { return []Peer{peer}, nil }, Logger: slog.New(slog.DiscardHandler)})
	if err := f.fetch(t.Context(), again.space.Absences()[0]); !errors.Is(err, cellfsm.ErrNotHere) || again.space.Absent() != 1 {
		t.Errorf("while the log is applied: %v, %d absent", err, again.space.Absent())
	}
	group.ready.Store(true)
	if err := f.fetch(t.Context(), again.space.Absences()[0]); err != nil || again.space.Absent() != 0 {
		t.Errorf("of a tenant that has gone: %v, %d absent", err, again.space.Absent())
	}
}

// staged is where the next attempt would write.
func staged(t *testing.T, r *replica) string {
	t.Helper()
	st, err := r.space.Stage(uid)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.End(); err != nil {
		t.Fatal(err)
	}
	return st.Path()
}

// Leadership goes to a voter that lacks nothing, and stays where there is none.
func TestLeadershipIsHandedOver(t *testing.T) {
	_, lacks := pair(t, 0)
	var whole atomic.Bool
	peer := Peer{ID: "n2~x", Name: "C2/n2", Voter: true, Whole: func(context.Context) (bool, error) { return whole.Load(), nil }}
	observer := Peer{ID: "n3", Name: "C2/n3", Whole: func(context.Context) (bool, error) { return true, nil }}
	group := new(log)
	group.leads.Store(true)
	f := New(Config{Space: lacks.space, Group: group, Peers: func() ([]Peer, error) { return []Peer{observer, peer}, nil }, Logger: slog.New(slog.DiscardHandler)})
	if err := f.handOver(t.Context()); !errors.Is(err, errNobody) || !group.IsLeader() {
		t.Errorf("handed over to nobody: %v", err)
	}
	whole.Store(true)
	if err := f.handOver(t.Context()); err != nil || group.to.Load() == nil || *group.to.Load() != "n2~x" {
		t.Errorf("not handed over: %v", err)
	}
}

// What told of an absence may come after the tenant was fetched: leadership stays.
func TestLeadershipStaysWhereNothingIsAbsent(t *testing.T) {
	whole := openReplica(t, t.TempDir())
	peer := Peer{ID: "n2~x", Name: "C2/n2", Voter: true, Whole: func(context.Context) (bool, error) { return true, nil }}
	group := new(log)
	group.leads.Store(true)
	f := New(Config{Space: whole.space, Group: group, Peers: func() ([]Peer, error) { return []Peer{peer}, nil }, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	told, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		f.mindLeadership(ctx, told)
	}()
	told <- struct{}{}
	told <- struct{}{} // it waits again, so the first is done with
	cancel()
	<-over
	if to := group.to.Load(); to != nil {
		t.Errorf("handed over to %s", *to)
	}
}

// A file of any size passes through a few pieces' memory.
func TestLargeFileTakesLittleMemory(t *testing.T) {
	const size = 64 << 20
	h := Header{Version: streamVersion, UID: uid, Tenant: "T7", Epoch: 1, Folder: "1-0", PageSize: 4096, Pages: size / 4096}
	r, w := io.Pipe()
	go func() {
		s, err := newSender(w, h)
		piece := make([]byte, pieceBytes)
		for n := 0; err == nil && n < size; n += len(piece) {
			err = s.piece(piece)
		}
		_ = w.CloseWithError(errors.Join(err, s.end()))
	}()
	f := New(Config{Space: openReplica(t, t.TempDir()).space, Limits: Limits{BytesPerSecond: 8 << 30}, Logger: slog.New(slog.DiscardHandler)})
	in, err := newReceiver(r)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stall := time.NewTimer(time.Hour)
	defer stall.Stop()
	sum := sha256.New()
	if err := f.copy(t.Context(), in, sum, stall, "C2/n2"); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes were allocated for a file of %d", took, size)
	}
}

func TestLimitsAreKept(t *testing.T) {
	l := Limits{BytesPerSecond: 4 << 20}.limiter()
	began := time.Now()
	for n := 0; n < 2<<20; n += pieceBytes {
		if err := l.WaitN(t.Context(), pieceBytes); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("2 MiB at 4 MiB a second took %s", took)
	}
}
