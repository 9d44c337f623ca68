package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"celld/gateway/problem"
	"celld/store/fault"
)

// operate runs one command line against a server and returns its output.
func operate(t *testing.T, h http.HandlerFunc, args ...string) (string, error) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c Command
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(append([]string{"--admin", s.URL, "--token-file", token}, args...))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	parsed.BindTo(t.Context(), (*context.Context)(nil))
	parsed.BindTo(&out, (*io.Writer)(nil))
	parsed.Bind(&c)
	err = parsed.Run()
	return out.String(), err
}

func answer(w http.ResponseWriter, format string, args ...any) {
	fmt.Fprintf(w, format, args...)
}

func TestListWalksAllPages(t *testing.T) {
	pages := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			answer(w, `{"items":[{"tenantId":"T7","epoch":9007199254740993,"suspended":false}],"nextCursor":"two"}`)
		case "two":
			answer(w, `{"items":[{"tenantId":"T8","name":"a\u001b[31mb","suspended":true}]}`)
		}
	}
	out, err := operate(t, pages, "tenant", "list")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "TENANT") || !strings.Contains(lines[1], "9007199254740993") || !strings.Contains(lines[2], "a?[31mb") {
		t.Errorf("got:\n%s", out)
	}
	out, err = operate(t, pages, "tenant", "list", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Items []struct {
			TenantID string      `json:"tenantId"`
			Epoch    json.Number `json:"epoch"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("not one document: %v\n%s", err, out)
	}
	if len(doc.Items) != 2 || doc.Items[0].Epoch != "9007199254740993" || doc.Items[1].TenantID != "T8" {
		t.Errorf("got %+v", doc)
	}
}

func TestCreateTenantSendsWhatWasAsked(t *testing.T) {
	out, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/tenants" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s, %v", r.Method, r.URL.Path, err)
		}
		if got := string(b); got != `{"cell":"C2","name":"Nine","owner":"U7","tenantId":"T9"}` {
			t.Errorf("body %s", got)
		}
		w.WriteHeader(http.StatusCreated)
		answer(w, `{"tenantId":"T9","cell":"C2"}`)
	}, "tenant", "create", "--id", "T9", "--name", "Nine", "--owner", "U7", "--cell", "C2")
	if err != nil || !strings.Contains(out, "T9") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestCellWithItsNodes(t *testing.T) {
	out, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, `{"cell":"C2","state":"active","nodes":[{"node":"n1","address":"a:1","leader":true,"healthy":true,"voter":true,"appliedIndex":7},{"node":"n2","address":"b:1","healthy":false}]}`)
	}, "cell", "show", "C2")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cell      C2", "NODE", "n1    a:1      yes      yes    yes", "n2    b:1      no       -      -"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

func TestCreateCellTakesSeveralNodes(t *testing.T) {
	_, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if got := string(b); err != nil || got != `{"capacity":10,"name":"C9","nodes":{"n1":"a:1","n2":"b:1"},"state":"draining"}` {
			t.Errorf("body %s, %v", got, err)
		}
		answer(w, `{"cell":"C9"}`)
	}, "cell", "create", "C9", "--node", "n1=a:1", "--node", "n2=b:1", "--capacity", "10", "--state", "draining")
	if err != nil {
		t.Fatal(err)
	}
}

func TestSuspendShowsTheTenantAfterIt(t *testing.T) {
	var calls []string
	out, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.URL.Path)
		answer(w, `{"tenantId":"T7","suspended":true}`)
	}, "tenant", "suspend", "T7", "--json")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(calls, ", "); got != "POST /tenants/T7/suspend, GET /tenants/T7" {
		t.Errorf("calls: %s", got)
	}
	if !strings.Contains(out, `"suspended": true`) {
		t.Errorf("got %s", out)
	}
}

func TestRefusalIsOneDocumentToo(t *testing.T) {
	out, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, fault.New(fault.Conflict, "tenant-exists", "the id is taken"))
	}, "tenant", "create", "--name", "Nine", "--owner", "U7", "--json")
	if !errors.Is(err, fault.New(fault.Conflict, "tenant-exists", "")) {
		t.Errorf("got %v", err)
	}
	var doc map[string]any
	if json.Unmarshal([]byte(out), &doc) != nil || doc["type"] != "tenant-exists" || doc["detail"] != "the id is taken" {
		t.Errorf("got %s", out)
	}
}

func TestNotFoundSaysWhat(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tenant", "show", "T9"}, "not-found: there is no tenant T9"},
		{[]string{"tenant", "suspend", "T9"}, "not-found: there is no tenant T9"},
		{[]string{"cell", "show", "C9"}, "not-found: there is no cell C9"},
	} {
		_, err := operate(t, func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, fault.Unknown()) }, c.args...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.args, err, c.want)
		}
	}
}

func TestAuditLimit(t *testing.T) {
	out, err := operate(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("tenant"); got != "T7" {
			t.Errorf("asked for %s", r.URL.RawQuery)
		}
		answer(w, `{"items":[{"action":"a"},{"action":"b"},{"action":"c"}],"nextCursor":"more"}`)
	}, "audit", "list", "--tenant", "T7", "--limit", "2")
	if err != nil || strings.Count(out, "\n") != 3 {
		t.Errorf("got %v:\n%s", err, out)
	}
}

func TestTokenFileIsNeededAndPrivate(t *testing.T) {
	c := Command{Server: "http://127.0.0.1:1"}
	if err := c.call(io.Discard, nil); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("got %v", err)
	}
	c.TokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(c.TokenFile, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.call(io.Discard, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
}
