package report

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceTouchesItsSectionAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	const before = "a\n<!-- figures: one -->\nold\n<!-- end of figures -->\nb\n<!-- figures: two -->\nkept\n<!-- end of figures -->\n"
	if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, "one", []byte("new\n\n")); err != nil {
		t.Fatal(err)
	}
	const want = "a\n<!-- figures: one -->\n\nnew\n\n<!-- end of figures -->\nb\n<!-- figures: two -->\nkept\n<!-- end of figures -->\n"
	for range 2 { // the second time it changes nothing
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("%v\n%s", err, got)
		}
		if err := Replace(path, "one", []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := Replace(path, "three", []byte("x")); err == nil {
		t.Error("a section that is not there was replaced")
	}
}
