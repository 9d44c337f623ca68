package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celld/cmd/celld/platform"
	"celld/gateway/openapitest"
)

// scratch holds what is built once for all tests.
var scratch = flag.String("e2e.scratch", "", "folder for the celld that isolated platforms run; a temporary one if empty")

func TestMain(m *testing.M) {
	flag.Parse()
	own := ""
	if *scratch == "" {
		dir, err := os.MkdirTemp("", "celld-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		own, *scratch = dir, dir
	}
	code := m.Run()
	if own != "" {
		if err := os.RemoveAll(own); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines were left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// binary builds celld once.
var binary = sync.OnceValues(func() (string, error) {
	file := filepath.Join(*scratch, "celld")
	args := []string{"build", "-o", file}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "celld/cmd/celld")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build celld: %w\n%s", err, out)
	}
	return file, nil
})

// TestPlatform runs the tests that can share a platform.
func TestPlatform(t *testing.T) {
	w := start(t, setup{fixture: true})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"matrix", adversarial}, {"forged", forged}, {"cell port", cellPort}, {"sessions", sessions}, {"suspension", suspension},
		{"idempotency", idempotency}, {"versions", versions}, {"freshness", freshness}, {"bad input", badInput}, {"cursors", cursors}, {"import", imports},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
	if flag.Lookup("test.run").Value.String() == "" {
		everyRouteSucceeded(t, w.checker)
	}
}

// setup says which platform a test wants.
type setup struct {
	dir      string // a new one if empty
	gateways int    // 0: one, or as the folder has it
	replicas int    // 0: three, or as the folder has it
	fixture  bool
	isolate  bool
}

// world is a running platform and what the tests know of it.
type world struct {
	platform *platform.Platform
	dir      string
	gateways []string // URLs
	operator caller
	http     *http.Client // of the public API
	checker  *openapitest.Checker
	count    *atomic.Int64
	clock    *clock // of nodes in this process
	stopped  bool
}

// start runs a platform until the test ends.
func start(t *testing.T, s setup) *world {
	t.Helper()
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "e2e.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{}
	o := platform.Options{
		Dir: s.dir, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Replicas: s.replicas, Gateways: s.gateways,
		Fixture: s.fixture, Isolate: s.isolate, Log: log, Level: slog.LevelInfo, Clock: c.now,
	}
	if s.isolate {
		if o.Binary, err = binary(); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	p, err := platform.Start(t.Context(), o)
	if err != nil {
		tellLog(t, s.dir)
		t.Fatalf("start the platform: %v", err)
	}
	t.Logf("the platform was ready after %s", time.Since(begun).Round(time.Millisecond))
	given := p.Credentials()
	w := &world{platform: p, dir: s.dir, gateways: given.Gateways, count: &atomic.Int64{}, clock: c}
	w.http, w.checker = checkedClient(t)
	w.operator = caller{http: plainClient(t), base: given.Admin, name: "the operator", token: given.OperatorToken}
	t.Cleanup(func() {
		w.stop(t)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if raw, err := os.ReadFile(log.Name()); err != nil || bytes.Contains(raw, []byte("DATA RACE")) || bytes.Contains(raw, []byte("panic:")) {
			t.Errorf("the log tells of a data race or a panic (%v)", err)
		}
		if t.Failed() {
			tellLog(t, s.dir)
		}
	})
	return w
}

// stop ends the platform in order.
func (w *world) stop(t *testing.T) {
	t.Helper()
	if w.stopped {
		return
	}
	w.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	if err := w.platform.Stop(ctx); err != nil {
		t.Errorf("stop the platform: %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

// tellLog shows the end of a platform's log, for a test that failed.
func tellLog(t *testing.T, dir string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "e2e.log"))
	if err != nil {
		return
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if !strings.Contains(line, `"level":"INFO"`) {
			lines = append(lines, line)
		}
	}
	const most = 40
	lines = lines[max(0, len(lines)-most):]
	t.Logf("the end of the log:\n%s", strings.Join(lines, ""))
}

// serial is a new name.
func (w *world) serial(prefix string) string {
	return prefix + strings.TrimPrefix(path(w.count.Add(1)), "/") + "x"
}

// nobody has no credentials.
func (w *world) nobody() caller { return w.as("nobody", "") }

// as is somebody with a token, at the first gateway.
func (w *world) as(name, token string) caller {
	return caller{http: w.http, base: w.gateways[0], name: name, token: token}
}

// fixture is a user of the fixture.
func (w *world) fixture(t testing.TB, name string) caller {
	t.Helper()
	token := w.platform.Credentials().Users[name]
	if token == "" {
		t.Fatalf("the fixture has no user %s", name)
	}
	return w.as(name, token)
}

// email is the address of a user that newUser made.
func (c caller) email() string { return strings.ToLower(c.name) + "@people.example" }

// newUser makes a user with a token.
func (w *world) newUser(t testing.TB) caller {
	t.Helper()
	c := w.as(w.serial("P"), "")
	a := w.operator.post(t, "/users", object{"userId": c.name, "email": c.email(), "name": "Somebody"}).want(t, http.StatusCreated)
	c.token = a.text(t, "token")
	return c
}

// newMember makes a user and brings it into a tenant.
func (w *world) newMember(t testing.TB, owner caller, tenant, role string) caller {
	t.Helper()
	c := w.newUser(t)
	invite := owner.post(t, path("tenants", tenant, "invites"), object{"email": c.email(), "role": role}).want(t, http.StatusCreated)
	c.post(t, "/invites/accept", object{"token": invite.text(t, "token")}).want(t, http.StatusOK)
	return c
}

// newTenant makes a tenant, as users do.
func (w *world) newTenant(t testing.TB, owner caller) string {
	t.Helper()
	return owner.post(t, "/tenants", object{"name": "Tenant of " + owner.name}).want(t, http.StatusCreated).text(t, "tenantId")
}

// newTenantIn makes a tenant in a cell, as operators do.
func (w *world) newTenantIn(t testing.TB, owner caller, cell string) string {
	t.Helper()
	a := w.operator.post(t, "/tenants", object{"name": "Tenant of " + owner.name, "owner": owner.name, "cell": cell})
	return a.want(t, http.StatusCreated).text(t, "tenantId")
}
