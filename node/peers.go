package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"celld/gateway/problem"
	"celld/node/api"
	"celld/raftfsm"
	"celld/raftfsm/mtls"
)

// askTime bounds a question to another node of the cell.
const askTime = 2 * time.Second

// maxStatus bounds the answer.
const maxStatus = 64 << 10

// peer is another node of the cell.
type peer struct{ name, address string }

// peers are the nodes of the cell that this one knows of, without itself: the
// members, and whom the settings name.
func (n *Node) peers(members []raftfsm.Member) []peer {
	var all []peer
	seen := map[string]bool{n.cfg.Name: true}
	add := func(name, address string) {
		if !seen[name] && address != "" {
			seen[name] = true
			all = append(all, peer{name, address})
		}
	}
	for _, m := range members {
		name := short(m.Name)
		add(name, n.addressOf(name, m.Address))
	}
	for _, name := range sortedNames(n.cfg.Peers) {
		add(name, n.cfg.Peers[name])
	}
	return all
}

// addressOf is where a node is reached: where the settings say, else where it was
// added with.
func (n *Node) addressOf(name, added string) string {
	if address := n.cfg.Peers[name]; address != "" {
		return address
	}
	return added
}

// short is a node's name within the cell.
func short(logical string) string {
	_, name, _ := strings.Cut(logical, "/")
	return name
}

// ask asks a node for its status. Each question has a connection of its own: they
// are rare.
func (n *Node) ask(ctx context.Context, p peer) (s api.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig:   mtls.ClientConfig(n.cfg.PKI, mtls.Node(string(n.cfg.Cell), p.name), "http/1.1"),
		DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/internal/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := problem.Read(resp); err != nil {
		return s, err
	}
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s at %s answers %s", p.name, p.address, resp.Status)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(&s)
	if err == nil && (s.Cell != string(n.cfg.Cell) || s.Node != p.name) {
		err = fmt.Errorf("the node at %s says that it is %s/%s", p.address, s.Cell, s.Node)
	}
	return s, err
}
