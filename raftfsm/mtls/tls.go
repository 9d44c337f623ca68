package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ServerConfig is for a listener that only the cluster's own processes get
// through. protocols are the ALPN names that it speaks.
func ServerConfig(p *PKI, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{p.Cert},
		ClientCAs:    p.Roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		NextProtos:   protocols,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := PeerIdentity(&state)
			return err
		},
	}
}

// ClientConfig is for dialing the process with the identity peer, and no other.
func ClientConfig(p *PKI, peer string, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{p.Cert},
		NextProtos:   protocols,
		// Certificates carry no host name: the chain is checked below, against the
		// cluster's CA alone, and then the identity.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyServer(p, peer, state)
		},
	}
}

func verifyServer(p *PKI, peer string, state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errNoPeer
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: p.Roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return err
	}
	identity, err := identityOf(leaf)
	if err != nil {
		return err
	}
	if identity != peer {
		return fmt.Errorf("the peer is %s, expected %s", identity, peer)
	}
	return nil
}
