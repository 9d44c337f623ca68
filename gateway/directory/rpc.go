package directory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/mtls"
	"celld/raftfsm/verify"
	"celld/store/fault"
	"celld/store/room"
)

// Prefix is the path below which Handler serves on a gateway's inner port.
const Prefix = "/internal/directory/"

const (
	pathPropose   = Prefix + "propose"
	pathReadIndex = Prefix + "read-index"
	pathApplied   = Prefix + "applied"
	pathDigest    = Prefix + "digest"
	pathRoom      = Prefix + "room"
)

const (
	maxRequest = 256 << 10
	maxAnswer  = 256 << 10
	maxWait    = 10 * time.Second // for any inner call
)

// request is the body of every inner call; each uses what it needs of it.
type request struct {
	_       struct{} `cbor:",toarray"`
	Command *raftfsm.Command
	Index   uint64
	Mark    string
}

// answer is what every inner call gets.
type answer struct {
	_       struct{} `cbor:",toarray"`
	Outcome *raftfsm.Outcome
	Index   uint64
	Fault   *wireFault
	Digest  *verify.Result
}

// wireFault is a fault.Error between gateways. Its cause stays where it happened.
type wireFault struct {
	_           struct{} `cbor:",toarray"`
	Kind        string
	Slug        string
	Detail      string
	Fields      map[string]any
	RetryMillis int64
}

func toWire(err error) *wireFault {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	return &wireFault{Kind: f.Kind.String(), Slug: f.Slug, Detail: f.Detail, Fields: f.Fields, RetryMillis: f.Retry.Milliseconds()}
}

func (w *wireFault) fault() error {
	f := &fault.Error{Slug: w.Slug, Detail: w.Detail, Retry: time.Duration(w.RetryMillis) * time.Millisecond}
	if len(w.Fields) > 0 {
		f.Fields = w.Fields
	}
	for _, k := range fault.Kinds() {
		if k.String() == w.Kind {
			f.Kind = k
			return f
		}
	}
	return fmt.Errorf("another gateway answered the unknown kind %q: %w", w.Kind, f)
}

// notSent marks an error after which the peer has certainly seen nothing.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// NewRPC makes the way to the other gateways: HTTP/1.1 over mutual TLS, with
// connections kept open. resolve gives a gateway's inner host:port; dial works
// below TLS, nil for a net.Dialer.
func NewRPC(pki *mtls.PKI, resolve func(name string) (string, error),
	dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, hostport string) (net.Conn, error) {
			conn, err := dialPeer(ctx, pki, network, hostport, resolve, dial)
			if err != nil {
				return nil, notSent{err}
			}
			return conn, nil
		},
		MaxIdleConnsPerHost:    16,
		MaxConnsPerHost:        256,
		IdleConnTimeout:        time.Minute,
		ResponseHeaderTimeout:  maxWait + time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
	}
}

// call makes one inner call. An error that is not a fault of the peer's is
// ErrNotLeader if nothing was sent and ErrUnknown if something may have been.
func (d *Directory) call(ctx context.Context, name, path string, in *request) (answer, error) {
	return call(ctx, d.cfg.RPC, name, path, in)
}

func call(ctx context.Context, rpc http.RoundTripper, name, path string, in *request) (answer, error) {
	var out answer
	if in == nil {
		in = &request{}
	}
	body, err := raftfsm.Encode(in)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+name+path, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	r.GetBody = nil // a call that may have been seen is not sent again behind our back
	r.Header.Set("Content-Type", "application/cbor")
	resp, err := rpc.RoundTrip(r)
	if err != nil {
		if errors.As(err, new(notSent)) {
			return out, raftfsm.ErrNotLeader.Because(err)
		}
		return out, raftfsm.ErrUnknown.Because(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && (resp.StatusCode != http.StatusOK || len(raw) > maxAnswer) {
		err = fmt.Errorf("gateway %s answered %s with %d bytes", name, resp.Status, len(raw))
	}
	if err == nil {
		err = raftfsm.Decode(raw, &out)
	}
	if err != nil {
		return answer{}, raftfsm.ErrUnknown.Because(err)
	}
	if out.Fault != nil {
		return answer{}, out.Fault.fault()
	}
	return out, nil
}

// Handler serves the other gateways' inner calls. Its requests must have come
// over mutual TLS; anyone but a member of the group is turned away.
func (d *Directory) Handler() http.Handler {
	routes := http.NewServeMux()
	routes.Handle("POST "+pathPropose, &inner{d, d.servePropose})
	routes.Handle("POST "+pathReadIndex, &inner{d, d.serveReadIndex})
	routes.Handle("POST "+pathApplied, &inner{d, d.serveApplied})
	routes.Handle("POST "+pathDigest, &inner{d, d.serveDigest})
	routes.Handle("POST "+pathRoom, &inner{d, d.serveRoom})
	return routes
}

// inner is one inner call's handler.
type inner struct {
	d     *Directory
	serve func(ctx context.Context, peer string, in request) (answer, error)
}

// ServeHTTP implements http.Handler.
func (h *inner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, err := h.d.peer(r)
	if err != nil {
		h.d.log.Warn("an inner call was refused", "node", h.d.cfg.Name, "error", err)
		http.Error(w, "only gateways of this directory may ask", http.StatusForbidden)
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var in request
	if err == nil {
		err = raftfsm.Decode(raw, &in)
	}
	if err != nil {
		http.Error(w, "the body is not a request of this version", http.StatusBadRequest)
		return
	}
	out, err := h.run(r.Context(), peer, in)
	if err != nil {
		out = answer{Fault: toWire(err)}
	}
	body, err := raftfsm.Encode(out)
	if err != nil {
		h.d.log.Error("an answer could not be encoded", "node", h.d.cfg.Name, "error", err)
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/cbor")
	_, _ = w.Write(body) // the peer that is gone asks again
}

func (h *inner) run(ctx context.Context, peer string, in request) (answer, error) {
	if !h.d.begin() {
		return answer{}, raftfsm.ErrNotLeader
	}
	defer h.d.work.Done()
	select {
	case h.d.callSlots <- struct{}{}:
		defer func() { <-h.d.callSlots }()
	default:
		return answer{}, raftfsm.ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	defer context.AfterFunc(h.d.ctx, cancel)()
	return h.serve(ctx, peer, in)
}

// peer is the name of the gateway that asks.
func (d *Directory) peer(r *http.Request) (string, error) {
	identity, err := mtls.PeerIdentity(r.TLS)
	if err != nil {
		return "", err
	}
	id, err := mtls.Parse(identity)
	if err != nil {
		return "", err
	}
	if !id.Gateway() {
		return "", fmt.Errorf("%s is no gateway", identity)
	}
	members, err := d.group.Servers()
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if m.Name == id.Name {
			return id.Name, nil
		}
	}
	return "", fmt.Errorf("%s is no member of the directory", identity)
}

func (d *Directory) servePropose(ctx context.Context, _ string, in request) (answer, error) {
	if in.Command == nil {
		return answer{}, fault.New(fault.Invalid, "no-command", "the call names no command")
	}
	out, err := d.lead(ctx, *in.Command)
	return answer{Outcome: &out}, err
}

func (d *Directory) serveReadIndex(ctx context.Context, peer string, _ request) (answer, error) {
	if _, leads := d.observe(); !leads {
		return answer{}, raftfsm.ErrNotLeader
	}
	d.grant(peer)
	index, err := d.group.ReadIndex(ctx)
	return answer{Index: index}, err
}

// hasRoom asks another gateway whether its disk has room. The answer's index is 1
// if so.
func (c *Config) hasRoom(ctx context.Context, m raftfsm.Member) (bool, error) {
	out, err := call(ctx, c.RPC, m.Name, pathRoom, nil)
	return out.Index == 1, err
}

func (d *Directory) serveRoom(context.Context, string, request) (answer, error) {
	if d.cfg.Room.Level() != room.Ample || !d.group.Ready() {
		return answer{}, nil
	}
	return answer{Index: 1}, nil
}

func (d *Directory) serveApplied(ctx context.Context, _ string, in request) (answer, error) {
	return answer{}, d.group.WaitApplied(ctx, in.Index)
}
