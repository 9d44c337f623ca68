package raftfsm

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"celld/raftfsm/mtls"
)

// port is a mux with a transport behind it.
type port struct {
	mux  *Mux
	pki  *mtls.PKI
	addr string
}

func openPort(t *testing.T, ca *mtls.CA, identity string) *port {
	t.Helper()
	pki, err := ca.Issue(identity, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux, err := NewMux(l, pki)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- mux.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(mux.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return &port{mux: mux, pki: pki, addr: l.Addr().String()}
}

func (p *port) transport(t *testing.T, group, name string, resolve func(string) (string, error)) *Transport {
	t.Helper()
	tr, err := NewTransport(TransportConfig{Group: group, Name: name, Listener: p.mux.Raft(group, name), PKI: p.pki, Resolve: resolve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func testCA(t *testing.T) *mtls.CA {
	t.Helper()
	ca, err := mtls.NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func to(addr string) func(string) (string, error) {
	return func(string) (string, error) { return addr, nil }
}

// A heartbeat reaches the consumer channel, whatever handler was set, and its
// answer counts for rounds that began before it was sent.
func TestHeartbeatReachesConsumer(t *testing.T) {
	ca := testCA(t)
	p1, p2 := openPort(t, ca, mtls.Node("C2", "n1")), openPort(t, ca, mtls.Node("C2", "n2"))
	t1, t2 := p1.transport(t, "C2", "C2/n1", to(p2.addr)), p2.transport(t, "C2", "C2/n2", to(p1.addr))
	t2.SetHeartbeatHandler(func(raft.RPC) { t.Error("taken aside") })
	go func() {
		for range 2 {
			rpc := <-t2.Consumer()
			req := rpc.Command.(*raft.AppendEntriesRequest)
			rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
		}
	}()
	req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("id1"), Addr: []byte("C2/n1")}, Term: 4}
	beat := func() {
		t.Helper()
		if err := t1.AppendEntries("id2", "C2/n2", req, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
	}
	beat()
	round := t1.acks.begin(4, []raft.Server{{ID: "id2"}, {ID: "id3"}}, 1)
	select {
	case <-round.done:
		t.Fatal("an answer to an earlier request counted")
	default:
	}
	beat()
	select {
	case <-round.done:
	default:
		t.Fatal("the answer did not count")
	}
}

func TestAcksCountOnlyWhatTheyShould(t *testing.T) {
	var a acks
	answer := func(peer raft.ServerID, moment, term, answered uint64) {
		a.answered(peer, moment, &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{Term: answered})
	}
	before := a.sending()
	r := a.begin(7, []raft.Server{{ID: "b"}, {ID: "c"}, {ID: "d"}, {ID: "e"}}, 2)
	now := a.sending()
	answer("b", before, 7, 7) // sent before the sample
	answer("b", now, 6, 6)    // of an earlier term of this leader
	answer("b", now, 7, 8)    // the peer has a newer leader
	answer("x", now, 7, 7)    // not a voter
	answer("b", now, 7, 7)
	answer("b", now, 7, 7) // twice
	select {
	case <-r.done:
		t.Fatal("confirmed without a majority")
	default:
	}
	answer("c", now, 7, 7)
	select {
	case <-r.done:
	default:
		t.Fatal("not confirmed by a majority")
	}
}

// Only members get through to a group's Raft traffic.
func TestWhoMayTalkRaft(t *testing.T) {
	ca := testCA(t)
	node := openPort(t, ca, mtls.Node("C2", "n1"))
	gateway := openPort(t, ca, mtls.Gateway("G1"))
	tr := node.transport(t, "C2", "C2/n1", to(node.addr))
	dir := gateway.transport(t, mtls.Directory, "G1", to(gateway.addr))
	dial := func(ca *mtls.CA, identity, group, peer, addr string) error {
		logical := group + "/n1"
		switch group {
		case mtls.Directory:
			logical = "G1"
		case "C2, wiped":
			group, logical = "C2", "C2/n1~before"
		}
		pki, err := ca.Issue(identity, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", addr, mtls.ClientConfig(pki, peer, alpn(group, logical)))
		if err != nil {
			return err
		}
		defer conn.Close()
		// The server of TLS 1.3 refuses after the client's handshake has ended.
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	n1, g1 := mtls.Node("C2", "n1"), mtls.Gateway("G1")
	for what, err := range map[string]error{
		"a gateway to a cell":             dial(ca, g1, "C2", n1, node.addr),
		"another cell's node":             dial(ca, mtls.Node("C5", "n1"), "C2", n1, node.addr),
		"a node to the directory":         dial(ca, n1, mtls.Directory, g1, gateway.addr),
		"another cluster's node":          dial(testCA(t), mtls.Node("C2", "n2"), "C2", n1, node.addr),
		"a leader to who was here before": dial(ca, mtls.Node("C2", "n2"), "C2, wiped", n1, node.addr),
		"a group that is not here":        dial(ca, mtls.Node("C9", "n2"), "C9", n1, node.addr),
		"a peer who is somebody else":     dial(ca, mtls.Node("C2", "n2"), "C2", mtls.Node("C2", "n3"), node.addr),
		"a protocol that is not spoken":   dial(ca, g1, "x", n1, node.addr),
		"a member of the name of a cell":  dial(ca, mtls.Gateway("C2"), "C2", n1, node.addr),
	} {
		if err == nil {
			t.Errorf("%s got in", what)
		}
	}
	select {
	case <-tr.Consumer():
		t.Error("a request got to the cell")
	case <-dir.Consumer():
		t.Error("a request got to the directory")
	default:
	}
}

func TestTransportNeedsItsOwnCertificate(t *testing.T) {
	p := openPort(t, testCA(t), mtls.Node("C2", "n1"))
	_, err := NewTransport(TransportConfig{Group: "C2", Name: "C2/n2", Listener: p.mux.Raft("C2", "C2/n2"), PKI: p.pki, Resolve: to("")})
	if err == nil {
		t.Error("a transport took another member's certificate")
	}
}

// HTTP on the same port: the handler learns who asks.
func TestHTTPBesideRaft(t *testing.T) {
	ca := testCA(t)
	p := openPort(t, ca, mtls.Node("C2", "n1"))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, err := mtls.PeerIdentity(r.TLS)
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, identity)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(p.mux.HTTP()) }()
	pki, err := ca.Issue(mtls.Gateway("G1"), time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: mtls.ClientConfig(pki, mtls.Node("C2", "n1"))}
	client := &http.Client{Transport: transport}
	resp, err := client.Get("https://" + p.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != mtls.Gateway("G1") {
		t.Errorf("answered %q, %v", body, err)
	}
	resp.Body.Close()
	transport.CloseIdleConnections()
	if _, err := http.Get("https://" + p.addr + "/"); err == nil {
		t.Error("a client without a certificate got in")
	}
	http.DefaultClient.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestLimitBytes(t *testing.T) {
	big := &raft.Log{Data: make([]byte, maxAppendBytes/2)}
	req := &raft.AppendEntriesRequest{Entries: []*raft.Log{big, big, big}}
	if limitBytes(req); len(req.Entries) != 2 {
		t.Errorf("%d entries go", len(req.Entries))
	}
	req.Entries = []*raft.Log{{Data: make([]byte, 2*maxAppendBytes)}, big}
	if limitBytes(req); len(req.Entries) != 1 {
		t.Errorf("%d entries go", len(req.Entries))
	}
}
