package api_test

import (
	"testing"

	"celld/node/api"
	"celld/node/nodetest"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store/tenant"
)

const aMove = tenant.MoveID("maaaaaaaaaaaaaaaaaaaaaaaaa")

// log has the cell's leader log a command of its own.
func (w *world) log(n raftfsm.Number, body any) (done cellfsm.Moved) {
	w.t.Helper()
	cmd, err := raftfsm.NewCommand(n, "", body)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.Node(w.Leader()).Group().Propose(w.t.Context(), cmd)
	if err == nil {
		err = out.Into(&done)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return done
}

// A tenant that a move holds is read by those alone who ask for stale data; one that
// has left by nobody. Records that were remembered are no way round it, and other
// tenants notice nothing.
func TestAdmissionDuringAMove(t *testing.T) {
	w := newWorld(t)
	of := cellfsm.MoveRef{Move: aMove, UID: w.t7.UID, Planned: 1}
	ask := func(node, path string, header ...string) nodetest.Answer {
		t.Helper()
		r := nodetest.Request{Method: "GET", Path: path, Header: make(map[string]string)}
		for i := 0; i < len(header); i += 2 {
			r.Header[header[i]] = header[i+1]
		}
		a, err := w.Ask(node, w.Sign(w.Context(w.viewer)), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	write := func() nodetest.Answer {
		t.Helper()
		a, err := w.Ask(w.Leader(), w.Sign(w.Context(w.member)), nodetest.Request{Method: "POST", Path: "/tenants/T7/customers",
			Body: `{"name":"late"}`, Header: map[string]string{api.HeaderKey: "k"}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	leader := w.Leader()
	reads := []string{"/tenants/T7/customers/1", "/tenants/T7/customers"}
	want := func(fresh, stale int, slug, writes string) {
		t.Helper()
		w.EnsureSame()
		for _, path := range reads {
			for range 2 { // the second one may be remembered
				w.want(ask(leader, path), fresh, slug)
				for _, node := range w.Running() {
					w.want(ask(node, path, api.HeaderConsistency, "stale"), stale, "")
				}
			}
		}
		if a := write(); a.Slug() != writes {
			t.Errorf("a write: %d %s", a.Status, a.Body)
		}
		w.want(w.As(w.other, "GET", "/tenants/T8/customers/1", ""), 200, "")
	}
	want(200, 200, "", "")
	w.log(cellfsm.MoveFreezeNumber, cellfsm.MoveFreeze{Of: of, Epoch: 1})
	want(503, 200, "tenant-frozen", "tenant-frozen")
	w.log(cellfsm.MoveThawNumber, cellfsm.MoveThaw{Of: of, Epoch: 1, Decision: cellfsm.Decision{Move: aMove, Index: 5}})
	want(200, 200, "", "")

	of.Move = aMove[:25] + "b"
	frozen := w.log(cellfsm.MoveFreezeNumber, cellfsm.MoveFreeze{Of: of, Epoch: 1})
	if frozen.Sequence != 2 || frozen.Absent { // the world's customer, and the one of the first writes
		t.Errorf("watermark %+v", frozen)
	}
	w.log(cellfsm.MoveRetireNumber, cellfsm.MoveRetire{Of: of, Epoch: 1, Decision: cellfsm.Decision{Move: of.Move, Commit: true, Index: 6}})
	want(503, 503, "placement-changed", "placement-changed")
	w.log(cellfsm.MoveDropNumber, cellfsm.MoveDrop{Of: of, Epoch: 1})
	want(503, 503, "placement-changed", "placement-changed")
	for _, node := range w.Running() {
		w.AwaitSwept(node, w.t7)
	}
}
