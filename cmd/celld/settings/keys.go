package settings

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Names of a gateway's context keys within its identity folder: the private one
// signs contexts, the public one goes to every node.
const (
	ContextKeyFile    = "context-key.pem"
	ContextPublicFile = "context-public.pem"
)

// NewContextKey makes a gateway's context keys in dir, in place of any before.
func NewContextKey(dir string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(filepath.Join(dir, ContextKeyFile), "PRIVATE KEY", privateDER, 0o600),
		writePEM(filepath.Join(dir, ContextPublicFile), "PUBLIC KEY", publicDER, 0o644))
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
}

func readPEM(path, kind string) ([]byte, error) {
	b, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s holds no %s", path, kind)
	}
	return block.Bytes, nil
}

// ContextKey reads the private key with which a gateway signs contexts.
func ContextKey(path string) (ed25519.PrivateKey, error) {
	if err := Private(path); err != nil {
		return nil, err
	}
	der, err := readPEM(path, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind than Ed25519", path)
	}
	return private, nil
}

// ContextPublic reads the public key by which nodes know a gateway's contexts.
func ContextPublic(path string) (ed25519.PublicKey, error) {
	der, err := readPEM(path, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind than Ed25519", path)
	}
	return public, nil
}
