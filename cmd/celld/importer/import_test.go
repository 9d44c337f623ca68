package importer

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run is one `celld import` and what came of it.
type run struct {
	Summary
	text, stderr string
	code         int
	err          error
}

func importing(t *testing.T, ctx context.Context, c Command, clk clock) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	r := run{err: c.load(ctx, &stdout, &stderr, clk)}
	r.text, r.stderr = stdout.String(), stderr.String()
	if exit := (*exitError)(nil); errors.As(r.err, &exit) {
		r.code = exit.ExitCode()
	} else if r.err != nil {
		t.Fatalf("an error without an exit code: %v", r.err)
	}
	if c.JSON && r.code != exitUsage {
		d := json.NewDecoder(&stdout)
		if err := d.Decode(&r.Summary); err != nil {
			t.Fatalf("summary: %v in %s", err, r.text)
		}
		if d.More() {
			t.Fatalf("more than one document: %s", r.text)
		}
	}
	return r
}

func tokenFile(t *testing.T) string {
	t.Helper()
	return file(t, "token", "secret\n")
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func command(t *testing.T, f *fakeAPI) Command {
	return Command{
		Gateway: f.URL, TokenFile: tokenFile(t), Tenant: "T9", Currency: "USD",
		Parallel: 4, MaxErrors: 1000, RetryFor: 2 * time.Minute, JSON: true,
	}
}

func sample(t *testing.T, f *fakeAPI) Command {
	c := command(t, f)
	c.Customers, c.Invoices = "testdata/customers.csv", "testdata/invoices.csv"
	c.Map = []string{
		"customers.reference=CustomerId", "customers.name=FirstName+LastName", "customers.email=Email", "customers.country=Country",
		"invoices.reference=InvoiceId", "invoices.customer=CustomerId", "invoices.amount=Total", "invoices.issuedAt=InvoiceDate", "invoices.memo=Memo",
	}
	return c
}

func TestImportTwice(t *testing.T) {
	f := newFakeAPI(t)
	c := sample(t, f)
	clk := (&fakeClock{}).clock()

	first := importing(t, t.Context(), c, clk)
	if first.code != exitIncomplete || first.Complete || !first.Changed {
		t.Errorf("first run: code %d, %+v", first.code, first.Summary)
	}
	if got := *first.Summary.Customers; got.Rows != 4 || got.Created != 4 {
		t.Errorf("customers: %+v", got)
	}
	in := first.Summary.Invoices
	if in.Rows != 7 || in.Created != 4 || in.Failed != 3 || len(in.Sums) != 1 {
		t.Fatalf("invoices: %+v", *in)
	}
	if sum := in.Sums[0]; sum.Currency != "USD" || sum.Created != (Sum{"1178", "11.78"}) || sum.Failed != (Sum{"100", "1.00"}) {
		t.Errorf("sums: %+v", sum)
	}
	for _, want := range []string{
		`invoices.csv:7: reference "5": there is no customer with reference "9" [unknown-customer]`,
		`invoices.csv:8: reference "6": amount "1.985" in USD has more decimal digits than the currency's 2 [invalid-amount]`,
		`invoices.csv:9: reference "7": amount "1,000.00" in USD is not a decimal number`,
	} {
		if !strings.Contains(first.stderr, want) {
			t.Errorf("stderr lacks %s:\n%s", want, first.stderr)
		}
	}
	checkSample(t, f)

	_, before := f.counters()
	f.forget()
	second := importing(t, t.Context(), c, clk)
	posts, after := f.counters()
	if after != before || posts != before {
		t.Errorf("the second run posted: %d posts, %d then %d effects", posts, before, after)
	}
	if second.Changed || second.Summary.Customers.AlreadyThere != 4 || second.Summary.Invoices.AlreadyThere != 4 {
		t.Errorf("second run: %+v %+v", second.Summary.Customers, second.Summary.Invoices)
	}
	if sum := second.Summary.Invoices.Sums[0]; sum.AlreadyThere != (Sum{"1178", "11.78"}) || sum.Loaded != sum.AlreadyThere {
		t.Errorf("sums of the second run: %+v", sum)
	}
}

func checkSample(t *testing.T, f *fakeAPI) {
	t.Helper()
	byRef := map[any]map[string]any{}
	for _, item := range f.items("customers") {
		byRef[item["reference"]] = item
	}
	for ref, want := range map[string][3]any{
		"1": {"Luís Gonçalves", "luis@example.com", "Brazil"},
		"3": {"François", nil, nil},
		"4": {"Wójcik", "stanislaw@example.com", "Poland"},
	} {
		if got := [3]any{byRef[ref]["name"], byRef[ref]["email"], byRef[ref]["country"]}; got != want {
			t.Errorf("customer %s: %q, want %q", ref, got, want)
		}
	}
	named := byRef
	byRef = map[any]map[string]any{}
	for _, item := range f.items("invoices") {
		byRef[item["reference"]] = item
	}
	for ref, want := range map[string][4]any{
		"1": {"198", nil, "2021-01-01T00:00:00Z", "2"},
		"2": {"396", "two\nlines, \"quoted\"", "2021-01-02T00:00:00Z", "4"},
		"3": {"-10", "=SUM(A1)", "2021-01-03T07:30:00Z", "1"},
		"4": {"594", "Grüße", nil, "3"},
	} {
		got := byRef[ref]
		customer := named[want[3]]["customerId"]
		customerID, _ := got["customerId"].(json.Number)
		id, _ := customerID.Int64()
		if minor, _ := got["amountMinor"].(json.Number); minor.String() != want[0] || got["memo"] != want[1] || got["issuedAt"] != want[2] || int(id) != customer {
			t.Errorf("invoice %s: %v, want %v", ref, got, want)
		}
	}
}

func TestChangedObjectIsAnError(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Customers = file(t, "c.csv", "reference,name\nA,Ann\nB,Bob\n")
	c.Invoices = file(t, "i.csv", "reference,customerReference,amount,memo,status,issuedAt\n1,A,1.00,m,,\n2,B,2.00,,,\n3,B,3.00,,draft,\n")
	if r := importing(t, t.Context(), c, realClock()); r.code != 0 {
		t.Fatal(r.err, r.stderr)
	}
	at := map[any]int{}
	for i, item := range f.items("invoices") {
		at[item["reference"]] = i + 1
	}
	f.set("invoices", at["1"], "amountMinor", json.Number("200"))
	f.set("invoices", at["2"], "status", "paid") // the file says nothing of it
	f.set("invoices", at["2"], "issuedAt", "2026-01-01T00:00:00Z")
	f.set("invoices", at["3"], "status", "paid") // the file says draft
	r := importing(t, t.Context(), c, realClock())
	if in := r.Summary.Invoices; r.code != exitIncomplete || in.AlreadyThere != 1 || in.Failed != 2 || in.Created != 0 {
		t.Errorf("code %d, %+v", r.code, *in)
	}
	for _, want := range []string{`amountMinor is "200" there and "100" in the file`, `status is "paid" there and "draft" in the file`} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, r.stderr)
		}
	}
}

func TestTroubleIsRetriedUnderOneKey(t *testing.T) {
	f := newFakeAPI(t)
	f.trouble = func(r *http.Request, n int) (http.HandlerFunc, bool) {
		switch n % 5 {
		case 2:
			return unavailable, true
		case 3:
			return unavailable, false
		case 4:
			return hangUp, n%2 == 0
		}
		return nil, false
	}
	var rows strings.Builder
	rows.WriteString("reference,name\n")
	for i := range 60 {
		rows.WriteString(strings.Repeat("x", i+1) + ",Name\n")
	}
	c := command(t, f)
	c.Customers = file(t, "c.csv", rows.String())
	r := importing(t, t.Context(), c, (&fakeClock{}).clock())
	if r.code != 0 || r.Summary.Customers.Created != 60 || r.Retries == 0 {
		t.Fatalf("%v: %+v %s", r.err, r.Summary.Customers, r.stderr)
	}
	if n := len(f.items("customers")); n != 60 {
		t.Errorf("%d customers", n)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Parallel = 1
	c.Customers = file(t, "c.csv", "reference,name\nA,Ann\nB,Bob\nC,Cid\n")
	f.trouble = func(r *http.Request, n int) (http.HandlerFunc, bool) {
		if r.Method == "POST" && n > 2 {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				problem(w, 429, "over-limit", "")
			}, false
		}
		return nil, false
	}
	clk := &fakeClock{}
	r := importing(t, t.Context(), c, clk.clock())
	if r.code != exitIncomplete || r.Summary.Customers.Created != 1 || r.Summary.Customers.Unfinished == 0 || r.Stopped == "" {
		t.Errorf("code %d: %+v, stopped %q", r.code, r.Summary.Customers, r.Stopped)
	}
	if got, want := clk.sleeps(), []time.Duration{maxRetryAfter, maxRetryAfter, maxRetryAfter, maxRetryAfter}; !slices.Equal(got, want) {
		t.Errorf("slept %v, want %v", got, want)
	}
	f.trouble = nil
	if r := importing(t, t.Context(), c, clk.clock()); r.code != 0 || r.Summary.Customers.Created != 2 || r.Summary.Customers.AlreadyThere != 1 {
		t.Errorf("resumed: %v %+v", r.err, r.Summary.Customers)
	}
}

func TestInterruptAndResume(t *testing.T) {
	f := newFakeAPI(t)
	c := sample(t, f)
	ctx, interrupt := context.WithCancel(t.Context())
	f.trouble = func(r *http.Request, n int) (http.HandlerFunc, bool) {
		if r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/invoices") {
			interrupt() // with the effect done and the answer lost
			return hangUp, true
		}
		return nil, false
	}
	c.Parallel = 1
	r := importing(t, ctx, c, realClock())
	if r.code != exitIncomplete || r.Stopped != "interrupted" || r.Summary.Customers.Created != 4 || r.Summary.Invoices.Unfinished == 0 {
		t.Errorf("code %d stopped %q: %+v", r.code, r.Stopped, r.Summary.Invoices)
	}
	f.trouble = nil
	r = importing(t, t.Context(), c, realClock())
	if in := r.Summary.Invoices; in.Created != 3 || in.AlreadyThere != 1 {
		t.Errorf("resumed: %+v", in)
	}
	checkSample(t, f)
	c.JSON = false
	r = importing(t, t.Context(), c, realClock())
	if want := "7 rows: 0 created, 4 already there, 3 failed"; !strings.Contains(r.text, want) {
		t.Errorf("the text lacks %q:\n%s", want, r.text)
	}
}

func TestFatalAnswersStopAtOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*fakeAPI, *Command)
		stopped string
	}{
		{"bad token", func(f *fakeAPI, c *Command) { f.token = "other" }, "does not accept the token"},
		{"unknown tenant", func(f *fakeAPI, c *Command) { c.Tenant = "T404" }, "tenant T404 is unknown"},
		{"redirect", func(f *fakeAPI, c *Command) {
			f.trouble = func(*http.Request, int) (http.HandlerFunc, bool) {
				return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", 307) }, false
			}
		}, "307"},
		{"not celld", func(f *fakeAPI, c *Command) {
			f.trouble = func(*http.Request, int) (http.HandlerFunc, bool) {
				return func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("<html>")) }, false
			}
		}, "is this the address of a celld gateway?"},
		{"forbidden", func(f *fakeAPI, c *Command) {
			f.trouble = func(r *http.Request, _ int) (http.HandlerFunc, bool) {
				if r.Method == "POST" {
					return func(w http.ResponseWriter, r *http.Request) { problem(w, 403, "forbidden", "viewers read") }, false
				}
				return nil, false
			}
		}, "viewers read"},
		{"nobody there", func(f *fakeAPI, c *Command) { f.Close() }, "gave up after retrying for 10s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeAPI(t)
			c := sample(t, f)
			test.change(f, &c)
			r := importing(t, t.Context(), c, (&fakeClock{}).clock())
			if _, mutating := f.counters(); r.code != exitIncomplete || !strings.Contains(r.Stopped, test.stopped) || mutating != 0 {
				t.Errorf("code %d, stopped %q, %d effects", r.code, r.Stopped, mutating)
			}
		})
	}
}

func TestRowsWithoutReference(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Customers = file(t, "c.csv", "reference,name,email\n,Ann,\n,Ann,a@example.com\n,Ann,\nB,Bob,\nB,Bob,\n")
	first := importing(t, t.Context(), c, realClock())
	f.forget()
	second := importing(t, t.Context(), c, realClock())
	if got := first.Summary.Customers; got.Created != 3 || got.Failed != 2 || got.NoReference != 2 {
		t.Errorf("first: %+v", got)
	}
	if got := second.Summary.Customers; got.AlreadyThere != 3 || got.Failed != 2 || len(f.items("customers")) != 3 {
		t.Errorf("second: %+v", got)
	}
	for _, want := range []string{"c.csv:4: is the same as line 2", `c.csv:6: reference "B": reference "B" is that of line 5 already`} {
		if !strings.Contains(second.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, second.stderr)
		}
	}
}

func TestReport(t *testing.T) {
	f := newFakeAPI(t)
	c := sample(t, f)
	c.Report = filepath.Join(t.TempDir(), "errors.csv")
	r := importing(t, t.Context(), c, realClock())
	if strings.Contains(r.stderr, "invalid-amount") {
		t.Errorf("stderr has the rows' errors too:\n%s", r.stderr)
	}
	in, err := os.Open(c.Report)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines, err := csv.NewReader(in).ReadAll()
	if err != nil || len(lines) != 4 {
		t.Fatalf("%v: %q", err, lines)
	}
	if want := []string{"testdata/invoices.csv", "8", "invoices", "6", "invalid-amount"}; !slices.Equal(lines[2][:5], want) {
		t.Errorf("%q, want %q", lines[2], want)
	}
}

func TestMaxErrorsAndBrokenFiles(t *testing.T) {
	f := newFakeAPI(t)
	c := sample(t, f)
	c.MaxErrors = 2
	if r := importing(t, t.Context(), c, realClock()); r.Summary.Invoices.Failed != 2 || !strings.Contains(r.Stopped, "too many rows failed") {
		t.Errorf("stopped %q, %+v", r.Stopped, r.Summary.Invoices)
	}
	c = command(t, f)
	c.Customers = file(t, "c.csv", "reference,name,note\nY,Yan,a,b\nX,\xff,\nZ,Zoe,\xff\n\"Q,unclosed\n")
	r := importing(t, t.Context(), c, realClock())
	if got := r.Summary.Customers; got.Created != 1 || got.Failed != 3 || !strings.Contains(r.Stopped, "is not CSV from line 5 on") {
		t.Errorf("stopped %q, %+v", r.Stopped, got)
	}
	for _, want := range []string{":2: has 4 columns, the header has 3 [wrong-column-count]", `:3: reference "X": name is not valid UTF-8`, ":5: a quote is never closed"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, r.stderr)
		}
	}
}
