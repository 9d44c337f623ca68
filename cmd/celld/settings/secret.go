package settings

import (
	"fmt"
	"os"
	"strings"
)

// Private refuses a file that anyone but its owner may read.
func Private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s holds a secret and others may read it (mode %04o); say: chmod 600 %s", path, mode, path)
	}
	return nil
}

// Secret reads a secret of one line from a file that only its owner may read.
func Secret(path string) (string, error) {
	if err := Private(path); err != nil {
		return "", err
	}
	b, err := readBounded(path)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	if s == "" || strings.ContainsAny(s, "\r\n") {
		return "", fmt.Errorf("%s must hold one line, the secret", path)
	}
	return s, nil
}
