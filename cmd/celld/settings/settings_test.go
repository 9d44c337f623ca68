package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"celld/raftfsm/mtls"
)

type nodeCLI struct {
	Config File[Node]
	Node   `embed:""`
}

func parse(t *testing.T, args ...string) (nodeCLI, error) {
	t.Helper()
	var c nodeCLI
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return c, err
}

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	path := write(t, `{"cell":"C2","name":"n1","region":"north","data":"/from/file","stopWithin":"3s","nodes":{"n1":"a:1","n2":"b:2"}}`, 0o600)
	t.Setenv("CELLD_REGION", "south")
	t.Setenv("CELLD_DATA", "/from/env")
	c, err := parse(t, "--config", path, "--data", "/from/flag")
	if err != nil {
		t.Fatal(err)
	}
	if c.Data != "/from/flag" || c.Region != "south" || c.Cell != "C2" || c.LogLevel != "info" {
		t.Errorf("got %+v", c.Node)
	}
	if time.Duration(c.StopWithin) != 3*time.Second {
		t.Errorf("stopWithin is %v", time.Duration(c.StopWithin))
	}
	if len(c.Nodes) != 2 || c.Nodes["n2"] != "b:2" {
		t.Errorf("nodes are %v", c.Nodes)
	}
}

func TestMapByFlagAndEnvironment(t *testing.T) {
	t.Setenv("CELLD_CONTEXT_KEYS", "G1=/g1;G2=/g2")
	c, err := parse(t, "--nodes", "n1=a:1;n2=b:2")
	if err != nil {
		t.Fatal(err)
	}
	if c.Nodes["n2"] != "b:2" || c.ContextKeys["G2"] != "/g2" {
		t.Errorf("got %v and %v", c.Nodes, c.ContextKeys)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"unknown", `{"cel":"C2"}`, `unknown key "cel"`},
		{"case", `{"Cell":"C2"}`, `unknown key "Cell"`},
		{"twice", `{"cell":"C2","cell":"C3"}`, "twice"},
		{"twice inside", `{"nodes":{"n1":"a:1","n2":"b:1","n1":"c:1"}}`, `"nodes" names "n1" twice`},
		{"type", `{"cell":2}`, `the key "cell" is a JSON number and must be a text in quotes`},
		{"map", `{"nodes":"n1=a:1"}`, `the key "nodes" is a JSON string and must be an object of texts`},
		{"embedded", `{"data":["a"]}`, `the key "data" is a JSON array`},
		{"span", `{"stopWithin":"soon"}`, "soon"},
		{"level", `{"logLevel":"loud"}`, "loud"},
		{"array", `[]`, "not a JSON object"},
		{"empty", ``, "not a JSON object"},
		{"broken", `{"cell":`, "does not end"},
		{"open", `{"cell":"C2"`, "does not end"},
		{"more", `{} {}`, "follows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, "--config", write(t, c.content, 0o600))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
	if _, err := parse(t, "--config", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestSecret(t *testing.T) {
	if s, err := Secret(write(t, " token \n", 0o600)); err != nil || s != "token" {
		t.Errorf("got %q, %v", s, err)
	}
	for name, path := range map[string]string{
		"chmod 600": write(t, "token", 0o640),
		"one line":  write(t, "a\nb", 0o600),
		"line":      write(t, "\n", 0o600),
	} {
		if _, err := Secret(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestContextKeys(t *testing.T) {
	dir := t.TempDir()
	if err := NewContextKey(dir); err != nil {
		t.Fatal(err)
	}
	private, err := ContextKey(filepath.Join(dir, ContextKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	public, err := ContextPublic(filepath.Join(dir, ContextPublicFile))
	if err != nil {
		t.Fatal(err)
	}
	if !public.Equal(private.Public()) {
		t.Error("the keys do not belong together")
	}
	if _, err := ContextPublic(filepath.Join(dir, ContextKeyFile)); err == nil {
		t.Error("a private key passes for a public one")
	}
	if err := os.Chmod(filepath.Join(dir, ContextKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ContextKey(filepath.Join(dir, ContextKeyFile)); err == nil {
		t.Error("a key that others may read is taken")
	}
}

// identity is a folder with n1's certificate, issued at a time for so long.
func identity(t *testing.T, at time.Time, life time.Duration) string {
	t.Helper()
	ca, err := mtls.NewCA(at, 1000*life)
	if err != nil {
		t.Fatal(err)
	}
	pki, err := ca.Issue(mtls.Node("C2", "n1"), at, life)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := pki.Save(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goodNode is a node whose settings are right.
func goodNode(t *testing.T) Node {
	t.Helper()
	dir, keys := identity(t, time.Now(), time.Hour), t.TempDir()
	if err := NewContextKey(keys); err != nil {
		t.Fatal(err)
	}
	return Node{
		Cell: "C2", Name: "n1", Nodes: map[string]string{"n1": "127.0.0.1:7001"},
		ContextKeys: map[string]string{"G1": filepath.Join(keys, ContextPublicFile)},
		Common: Common{Data: "/data", Inner: "127.0.0.1:7001", Identity: dir, LogLevel: "info",
			StopWithin: Duration(time.Second), Election: Duration(time.Second)},
	}
}

func TestNodeCheck(t *testing.T) {
	good := goodNode(t)
	if err := good.Check(); err != nil {
		t.Fatalf("good settings: %v", err)
	}
	for _, c := range []struct {
		want   string
		change func(*Node)
	}{
		{"--cell", func(n *Node) { n.Cell = "" }},
		{"not a name", func(n *Node) { n.Name = "1" }},
		{"holds the certificate of", func(n *Node) { n.Name, n.Nodes = "n2", map[string]string{"n2": "b:2"} }},
		{"does not name this node", func(n *Node) { n.Nodes = map[string]string{"n2": "b:2"} }},
		{"host:port", func(n *Node) { n.Inner = "127.0.0.1" }},
		{"--identity", func(n *Node) { n.Identity = filepath.Join(n.Identity, "none") }},
		{"expired at", func(n *Node) { n.Identity = identity(t, time.Now().Add(-48*time.Hour), 24*time.Hour) }},
		{"not valid before", func(n *Node) { n.Identity = identity(t, time.Now().Add(48*time.Hour), 24*time.Hour) }},
		{"not of the CA", func(n *Node) { n.Identity = foreign(t) }},
		{"--context-keys", func(n *Node) { n.ContextKeys = nil }},
		{"--digest-rate", func(n *Node) { n.DigestRate = -1 }},
		{"--keep-keys", func(n *Node) { n.KeepKeys = Duration(23 * time.Hour) }},
		{"--keep-audit", func(n *Node) { n.KeepKeys, n.KeepAudit = Duration(48*time.Hour), Duration(47*time.Hour) }},
		{"--election", func(n *Node) { n.Election = 0 }},
	} {
		n := good
		c.change(&n)
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
}

// foreign is an identity beside another CA's certificate.
func foreign(t *testing.T) string {
	t.Helper()
	dir, other := identity(t, time.Now(), time.Hour), identity(t, time.Now(), time.Hour)
	if err := os.Rename(filepath.Join(other, mtls.CAFile), filepath.Join(dir, mtls.CAFile)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWarningOfTheCertificate(t *testing.T) {
	n := goodNode(t)
	if said := n.Warning(time.Now()); !strings.Contains(said, "expires at") {
		t.Errorf("an hour before the end: %q", said)
	}
	n.Identity = identity(t, time.Now(), 100*24*time.Hour)
	if said := n.Warning(time.Now()); said != "" {
		t.Errorf("100 days before the end: %q", said)
	}
}

func TestGatewayCheckNamesEverythingAtOnce(t *testing.T) {
	err := (&Gateway{}).Check()
	if err == nil {
		t.Fatal("empty settings pass")
	}
	for _, want := range []string{"--name", "--data", "--identity", "--gateways", "--operator-token-file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}
