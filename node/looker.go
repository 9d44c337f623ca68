package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"celld/gateway/problem"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
)

// looker asks the other nodes of the cell over their inner ports, where a node may
// only look.
type looker struct {
	pki     *mtls.PKI
	resolve func(full string) (string, error)

	mu     sync.Mutex
	known  map[string]*line
	closed bool
}

// line is the way to one node at one address.
type line struct {
	address string
	wire    *http.Transport
}

const (
	// maxLooked bounds what a peer may answer.
	maxLooked = 64 << 10
	// lookTime bounds one question.
	lookTime = 10 * time.Second
)

func newLooker(pki *mtls.PKI, resolve func(string) (string, error)) *looker {
	return &looker{pki: pki, resolve: resolve, known: make(map[string]*line)}
}

// get asks a member and decodes its answer. What it refuses is a *fault.Error.
func (l *looker) get(ctx context.Context, m raftfsm.Member, path string, into any) error {
	full := m.Name
	to, err := l.to(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: to.address, Path: path}, Header: make(http.Header)}).WithContext(ctx)
	resp, err := to.wire.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("node %s: %w", full, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxLooked))
	if err != nil {
		return fmt.Errorf("node %s: %w", full, err)
	}
	if err := problem.Parse(resp.StatusCode, resp.Header, raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("answer of node %s: %w", full, err)
	}
	return nil
}

// to finds a member's address as Raft's transport does: the settings know it, or
// it came with the member.
func (l *looker) to(m raftfsm.Member) (*line, error) {
	full := m.Name
	address, err := l.resolve(full)
	if err != nil && m.Address == "" {
		return nil, err
	}
	if err != nil {
		address = m.Address
	}
	cell, name, _ := strings.Cut(full, "/")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosing
	}
	have := l.known[full]
	if have == nil || have.address != address {
		if have != nil {
			have.wire.CloseIdleConnections()
		}
		have = &line{address: address, wire: &http.Transport{
			TLSClientConfig: mtls.ClientConfig(l.pki, mtls.Node(cell, name), "http/1.1"), TLSHandshakeTimeout: 2 * time.Second,
			MaxIdleConnsPerHost: 2, MaxConnsPerHost: 32, IdleConnTimeout: time.Minute, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
		}}
		l.known[full] = have
	}
	return have, nil
}

// close ends idle connections. Nobody asks any more.
func (l *looker) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, to := range l.known {
		to.wire.CloseIdleConnections()
	}
}
