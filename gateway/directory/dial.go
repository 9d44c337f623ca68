package directory

import (
	"context"
	"crypto/tls"
	"net"

	"celld/raftfsm/mtls"
)

// dialPeer opens a connection to the gateway named by hostport, whatever its
// address, and proves that it is the one.
func dialPeer(ctx context.Context, pki *mtls.PKI, network, hostport string, resolve func(string) (string, error),
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	name, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	address, err := resolve(name)
	if err != nil {
		return nil, err
	}
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, mtls.ClientConfig(pki, mtls.Gateway(name), "http/1.1"))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}
