package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeAPI does what design section 7 says of customers and invoices, as far as an
// import uses it: references are unique, keys have one effect, lists have pages.
type fakeAPI struct {
	*httptest.Server
	tenant, token string

	mu       sync.Mutex
	lists    map[string][]map[string]any // by kind; item i has id i+1
	replies  map[string]reply            // by kind and key
	mutating int                         // POSTs that had an effect
	posts    int                         // POSTs that arrived
	page     int                         // items in a page, at most

	// trouble is asked before each request; what it writes replaces the answer.
	// after says that the effect happens nevertheless.
	trouble func(r *http.Request, n int) (answer http.HandlerFunc, after bool)
	n       int
}

type reply struct {
	payload string
	id      int
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{tenant: "T9", token: "secret", page: 7, lists: map[string][]map[string]any{}, replies: map[string]reply{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.n++
	if f.trouble != nil {
		if answer, after := f.trouble(r, f.n); answer != nil {
			if after {
				f.serve(httptest.NewRecorder(), r, body)
			}
			f.mu.Unlock()
			answer(w, r)
			return
		}
	}
	defer f.mu.Unlock()
	f.serve(w, r, body)
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Header.Get("Authorization") != "Bearer "+f.token {
		problem(w, 401, "unauthenticated", "")
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if len(parts) < 3 || parts[0] != "tenants" || parts[1] != f.tenant || parts[2] != "customers" && parts[2] != "invoices" {
		problem(w, 404, "not-found", "")
		return
	}
	kind := parts[2]
	switch {
	case r.Method == "POST" && len(parts) == 3:
		f.post(w, r, kind, body)
	case r.Method == "GET" && len(parts) == 3:
		f.list(w, r, kind)
	case r.Method == "GET" && len(parts) == 4:
		id, err := strconv.Atoi(parts[3])
		if err != nil || id < 1 || id > len(f.lists[kind]) {
			problem(w, 404, "not-found", "")
			return
		}
		respond(w, 200, f.lists[kind][id-1])
	default:
		problem(w, 405, "method-not-allowed", "")
	}
}

func (f *fakeAPI) post(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
	f.posts++
	key := kind + " " + r.Header.Get("Idempotency-Key")
	if before, ok := f.replies[key]; ok {
		if before.payload != string(body) {
			problem(w, 422, "idempotency-key-reused", "")
			return
		}
		w.Header().Set("Idempotency-Replayed", "true")
		respond(w, 201, f.lists[kind][before.id-1])
		return
	}
	item := map[string]any{}
	if err := decode(body, kind, item); err != nil {
		problem(w, 400, "malformed", err.Error())
		return
	}
	for _, other := range f.lists[kind] {
		if ref, given := item["reference"]; given && other["reference"] == ref {
			problem(w, 409, "reference-taken", "")
			return
		}
	}
	if kind == "invoices" {
		id, _ := item["customerId"].(json.Number).Int64()
		if id < 1 || int(id) > len(f.lists["customers"]) {
			problem(w, 422, "unknown-customer", "")
			return
		}
		if item["status"] == nil {
			item["status"] = "draft"
		}
	}
	id := len(f.lists[kind]) + 1
	item[strings.TrimSuffix(kind, "s")+"Id"] = id
	item["tenantId"], item["version"] = f.tenant, 1
	f.lists[kind] = append(f.lists[kind], item)
	f.replies[key] = reply{payload: string(body), id: id}
	f.mutating++
	respond(w, 201, item)
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, kind string) {
	from := 0
	for name, values := range r.URL.Query() {
		var err error
		switch name {
		case "cursor":
			from, err = strconv.Atoi(strings.TrimPrefix(values[0], "after-"))
		case "limit":
			if n, _ := strconv.Atoi(values[0]); n < 1 || n > 500 {
				err = errors.New("limit")
			}
		default:
			err = errors.New(name)
		}
		if err != nil || len(values) != 1 {
			problem(w, 400, "invalid-parameter", name)
			return
		}
	}
	to := min(from+f.page, len(f.lists[kind]))
	page := map[string]any{"items": append([]map[string]any{}, f.lists[kind][from:to]...)}
	if to < len(f.lists[kind]) {
		page["nextCursor"] = fmt.Sprintf("after-%d", to)
	}
	respond(w, 200, page)
}

// decode is as strict as the API: no unknown members, numbers are integers.
func decode(body []byte, kind string, into map[string]any) error {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&into); err != nil {
		return err
	}
	allowed := map[string][]string{
		"customers": {"reference", "name", "email", "country"},
		"invoices":  {"reference", "customerId", "amountMinor", "currency", "memo", "status", "issuedAt", "internal"},
	}[kind]
	for name, v := range into {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("unknown member %s", name)
		}
		if n, ok := v.(json.Number); ok {
			if _, err := n.Int64(); err != nil {
				return err
			}
		}
	}
	return nil
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(w http.ResponseWriter, status int, slug, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": slug, "title": slug, "status": status, "detail": detail, "requestId": "r1"})
}

// unavailable is a 503 as the gateway gives it while a cell elects a leader.
func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	problem(w, 503, "outcome-unknown", "")
}

// hangUp breaks the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func (f *fakeAPI) items(kind string) []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lists[kind])
}

func (f *fakeAPI) counters() (posts, mutating int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.posts, f.mutating
}

// set changes an object as somebody else would through the API.
func (f *fakeAPI) set(kind string, id int, name string, v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists[kind][id-1][name] = v
}

// forget drops the idempotency keys, as the platform does after a day.
func (f *fakeAPI) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.replies)
}
