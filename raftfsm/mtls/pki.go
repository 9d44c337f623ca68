package mtls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// File names inside a folder that Save wrote.
const (
	CertFile = "cert.pem"
	KeyFile  = "key.pem"
	CAFile   = "ca.pem"
)

// PKI is what one process needs to prove who it is and to check others.
type PKI struct {
	Cert     tls.Certificate
	Roots    *x509.CertPool
	Identity string

	caPEM []byte
}

// Load reads a process's certificate, key and the cluster's CA certificate. A
// key file that others can read is refused.
func Load(certFile, keyFile, caFile string) (*PKI, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readSecret(keyFile)
	if err != nil {
		return nil, err
	}
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	p, err := newPKI(certPEM, keyPEM, caPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return p, nil
}

// LoadDir is Load for the file names that Save uses.
func LoadDir(dir string) (*PKI, error) {
	return Load(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile), filepath.Join(dir, CAFile))
}

func newPKI(certPEM, keyPEM, caPEM []byte) (*PKI, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	identity, err := identityOf(cert.Leaf)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caPEM) {
		return nil, errors.New("the CA file holds no certificate")
	}
	return &PKI{Cert: cert, Roots: roots, Identity: identity, caPEM: caPEM}, nil
}

// Save writes certificate, key and CA certificate into a folder.
func (p *PKI) Save(dir string) error {
	key, err := encodeKey(p.Cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, KeyFile), key, 0o600); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, CAFile), p.caPEM, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, CertFile), encodeCerts(p.Cert.Certificate...), 0o644)
}

func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o); chmod 600 it", path, info.Mode().Perm())
	}
	return os.ReadFile(path)
}

// writeFile replaces a file as a whole.
func writeFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

func encodeKey(key any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCerts(ders ...[]byte) []byte {
	var buf bytes.Buffer
	for _, der := range ders {
		buf.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return buf.Bytes()
}

func identityOf(cert *x509.Certificate) (string, error) {
	if len(cert.URIs) != 1 {
		return "", errNoPeer
	}
	identity := cert.URIs[0].String()
	if _, err := Parse(identity); err != nil {
		return "", err
	}
	return identity, nil
}

// CA is a certificate authority: one for each cluster.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// backdate allows for clocks that differ between machines.
const backdate = time.Hour

// NewCA makes a certificate authority that is valid for life from now.
func NewCA(now time.Time, life time.Duration) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "celld cluster CA"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key, pem: encodeCerts(der)}, nil
}

// Issue makes a key and a certificate for an identity, valid for life from now
// and never longer than the CA itself.
func (ca *CA) Issue(identity string, now time.Time, life time.Duration) (*PKI, error) {
	if _, err := Parse(identity); err != nil {
		return nil, err
	}
	uri, err := url.Parse(identity)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	end := now.Add(life)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: identity}, URIs: []*url.URL{uri},
		NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return newPKI(encodeCerts(der), keyPEM, ca.pem)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// Names of the CA's files inside the folder that CA.Save wrote.
const caKeyFile = "ca-key.pem"

// Save writes the CA's certificate (ca.pem) and key (ca-key.pem) into a folder.
// It refuses to replace a CA that is already there.
func (ca *CA) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{caKeyFile, CAFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			if err == nil {
				err = fmt.Errorf("%s already holds a CA (%s); use another folder", dir, name)
			}
			return err
		}
	}
	key, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, caKeyFile), key, 0o600); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, CAFile), ca.pem, 0o644)
}

// LoadCA reads what CA.Save wrote.
func LoadCA(dir string) (*CA, error) {
	keyPEM, err := readSecret(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, err
	}
	caPEM, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(caPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("%s: not a CA that celld made", dir)
	}
	return &CA{cert: pair.Leaf, key: key, pem: caPEM}, nil
}
