package node

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"celld/node/fetch"
	"celld/raftfsm/mtls"
)

// beside serves files to other nodes beside what gateways ask for. It stands
// outside of the gate: a file takes longer than a stop waits, and who is cut off
// asks another node.
func beside(files, gate http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fetch.IsPath(r.URL.Path) {
			files.ServeHTTP(w, r)
			return
		}
		gate.ServeHTTP(w, r)
	})
}

// filePeers is the cell's other members, to fetch files from and to hand
// leadership to.
func (n *Node) filePeers() ([]fetch.Peer, error) {
	members, err := n.group.Servers()
	if err != nil {
		return nil, err
	}
	var peers []fetch.Peer
	for _, m := range members {
		if m.ID == n.group.ID() {
			continue
		}
		at := peer{short(m.Name), n.addressOf(short(m.Name), m.Address)}
		peers = append(peers, fetch.Peer{
			ID: m.ID, Name: m.Name, Voter: m.Voter, Client: n.clients.of(&n.cfg, at),
			Whole: func(ctx context.Context) (bool, error) {
				said, err := n.ask(ctx, at)
				return said.Ready && said.Absent == 0, err
			},
		})
	}
	return peers, nil
}

// peerClients keeps a client for each of the cell's other nodes.
type peerClients struct {
	mu  sync.Mutex
	all map[peer]*http.Client
}

func (c *peerClients) of(cfg *Config, p peer) *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.all[p]; client != nil {
		return client
	}
	if c.all == nil {
		c.all = make(map[peer]*http.Client)
	}
	secure := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 5 * time.Second},
		Config:    mtls.ClientConfig(cfg.PKI, mtls.Node(string(cfg.Cell), p.name), "http/1.1"),
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return secure.DialContext(ctx, network, p.address)
			},
			MaxConnsPerHost: 8, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 30 * time.Second, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.all[p] = client
	return client
}

func (c *peerClients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.all {
		client.CloseIdleConnections()
	}
}
