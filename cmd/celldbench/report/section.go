package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Replace puts text between the marks of a section of the file at path:
//
//	<!-- figures: NAME -->
//	<!-- end of figures -->
//
// The file is replaced in one step, and only if it has the section.
func Replace(path, name string, text []byte) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := fmt.Appendf(nil, "<!-- figures: %s -->\n", name), []byte("<!-- end of figures -->")
	head, rest, found := bytes.Cut(old, begin)
	_, tail, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no section %q: a line <!-- figures: %s --> and after it a line %s", path, name, name, end)
	}
	all := bytes.Join([][]byte{head, begin, []byte("\n"), bytes.TrimSpace(text), []byte("\n\n"), end, tail}, nil)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(all)
	err = errors.Join(err, f.Chmod(info.Mode()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
