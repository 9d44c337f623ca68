//go:build failpoints

package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestHere runs itself as a child, which dies at the step that a file names and
// at no other.
func TestHere(t *testing.T) {
	if os.Getenv(Variable) != "" {
		Here(CommitBegun)
		Here(CommitDone)
		return
	}
	for _, test := range []struct {
		file string
		dies bool
	}{{"commit-done", true}, {"commit-done@1", false}, {"apply-done", false}} {
		dir := t.TempDir()
		file := filepath.Join(dir, test.file)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run=^TestHere$")
		child.Env = append(os.Environ(), Variable+"="+dir)
		err := child.Run()
		var exit *exec.ExitError
		died := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		_, gone := os.Stat(file)
		if died != test.dies || (gone != nil) != test.dies {
			t.Errorf("%s: died %v (%v), file: %v", test.file, died, err, gone)
		}
	}
}
