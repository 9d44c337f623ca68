package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"celld/cmd/celld/settings"
)

// TestMain also plays celld itself: the scripts run it as a program, and `celld
// dev --isolate` runs it again as its children.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"celld": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "../../testdata/cli", RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: scriptCommands()})
}

// TestSettingsAreDocumented holds docs/configuration.md against the settings, and
// the examples against what the settings take.
func TestSettingsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, typ := range []reflect.Type{reflect.TypeFor[settings.Common](), reflect.TypeFor[settings.Node](), reflect.TypeFor[settings.Gateway]()} {
		for f := range typ.Fields() {
			if f.Anonymous {
				continue
			}
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			cells := []string{"`" + key + "`", "`" + f.Tag.Get("env") + "`"}
			if d := f.Tag.Get("default"); d != "" {
				cells = append(cells, "`"+d+"`")
			}
			if !lineWith(doc, cells) {
				t.Errorf("docs/configuration.md has no line with %v", cells)
			}
		}
	}
	for example, role := range map[string]string{"node": "node", "node-join": "node", "gateway": "gateway"} {
		var stderr strings.Builder
		code := run([]string{role, "--config", filepath.Join("../../docs/examples", example+".json"), "--check"}, &strings.Builder{}, &stderr)
		// Its files do not exist here; everything else must be right.
		for line := range strings.Lines(stderr.String()) {
			if !strings.Contains(line, "no such file") && !strings.Contains(line, "--help") {
				t.Errorf("%s.json: exit code %d: %s", example, code, line)
			}
		}
	}
}

func lineWith(doc string, cells []string) bool {
	for line := range strings.Lines(doc) {
		all := true
		for _, c := range cells {
			all = all && strings.Contains(line, c)
		}
		if all {
			return true
		}
	}
	return false
}
