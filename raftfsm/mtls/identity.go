package mtls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"celld/store/tenant"
)

// Directory is the name of the gateways' own group.
const Directory = "directory"

const scheme = "celld://"

// Node is a cell node's identity.
func Node(cell, node string) string { return scheme + "node/" + cell + "/" + node }

// Gateway is a gateway's identity.
func Gateway(name string) string { return scheme + "gateway/" + name }

// Identity is an identity taken apart.
type Identity struct {
	Cell string // "" for a gateway
	Name string // the node's or the gateway's
}

// Parse takes an identity apart.
func Parse(identity string) (Identity, error) {
	rest, ok := strings.CutPrefix(identity, scheme)
	kind, rest, _ := strings.Cut(rest, "/")
	var id Identity
	switch {
	case ok && kind == "gateway":
		id.Name = rest
	case ok && kind == "node":
		id.Cell, id.Name, ok = strings.Cut(rest, "/")
		ok = ok && tenant.ValidID(id.Cell)
	default:
		ok = false
	}
	if !ok || !tenant.ValidID(id.Name) {
		return Identity{}, fmt.Errorf("%q is no identity; use celld://node/<cell>/<node> or celld://gateway/<name>", identity)
	}
	return id, nil
}

// Gateway reports whether the identity is a gateway's.
func (id Identity) Gateway() bool { return id.Cell == "" }

// String is the inverse of Parse.
func (id Identity) String() string {
	if id.Gateway() {
		return Gateway(id.Name)
	}
	return Node(id.Cell, id.Name)
}

// Member is the identity of the member with a logical name in a group: "G1" in
// the directory, "C2/n1" in C2.
func Member(group, name string) string {
	if group == Directory {
		return Gateway(name)
	}
	return scheme + "node/" + name
}

// MayJoin reports whether a peer may take part in a group's Raft traffic.
func MayJoin(group, identity string) bool {
	id, err := Parse(identity)
	if err != nil {
		return false
	}
	if group == Directory {
		return id.Gateway()
	}
	return !id.Gateway() && id.Cell == group
}

var errNoPeer = errors.New("the peer showed no certificate with a celld identity")

// PeerIdentity returns the identity that the peer of a finished handshake has
// proved.
func PeerIdentity(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", errNoPeer
	}
	return identityOf(state.VerifiedChains[0][0])
}
