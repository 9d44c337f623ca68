package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celld/cmd/celld/importer"
)

// load is one import that is run twice.
type load struct {
	customers, invoices string   // files
	maps                []string // flags
	currency            string
	wantCustomers       int
	wantInvoices        int
	wantSum             int64 // minor units
}

// imports shows that files come in once, however often they are loaded.
func imports(t *testing.T, w *world) {
	chinook := []string{
		"customers.reference=CustomerId", "customers.name=FirstName+LastName", "customers.email=Email", "customers.country=Country",
		"invoices.reference=InvoiceId", "invoices.customer=CustomerId", "invoices.amount=Total", "invoices.issuedAt=InvoiceDate",
	}
	t.Run("chinook", func(t *testing.T) {
		dir := filepath.Join("..", "..", "..", "..", "shared", "data", "chinook")
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("the Chinook files are not part of the source; they are looked for in ../shared/data/chinook beside it: %v", err)
		}
		importTwice(t, w, load{
			customers: filepath.Join(dir, "customers.csv"), invoices: filepath.Join(dir, "invoices.csv"),
			maps: chinook, currency: "USD", wantCustomers: 59, wantInvoices: 412, wantSum: 232860,
		})
	})
	t.Run("rows that cannot be loaded", func(t *testing.T) {
		owner := w.newUser(t)
		tenant := w.newTenant(t, owner)
		dir := filepath.Join("..", "importer", "testdata")
		l := load{customers: filepath.Join(dir, "customers.csv"), invoices: filepath.Join(dir, "invoices.csv"), maps: append([]string{"invoices.memo=Memo"}, chinook...), currency: "USD"}
		for run, created := range []int64{4, 0} {
			s, text, complaints, err := l.run(t, w, owner, tenant)
			// A negative amount, a customer who is not there, half a cent, a thousands separator.
			if err == nil || s.Complete || s.Changed != (run == 0) || s.Customers.Created != created || s.Customers.Rows != 4 || s.Invoices.Failed != 4 || s.Invoices.Rows != 7 {
				t.Fatalf("run %d: %v %s", run+1, err, text)
			}
			for _, word := range []string{"invoices.csv:5: ", "[unknown-customer]", "invoices.csv:7: ", "[invalid-amount]"} {
				if !strings.Contains(complaints, word) {
					t.Errorf("run %d: %q is not among the complaints:\n%s", run+1, word, complaints)
				}
			}
		}
		if n := len(walk(t, owner, path("tenants", tenant, "invoices"), "", 7, nil)); n != 3 {
			t.Errorf("there are %d invoices", n)
		}
	})
	t.Run("accents, joins, three exponents", func(t *testing.T) {
		dir := t.TempDir()
		customers, invoices := filepath.Join(dir, "customers.csv"), filepath.Join(dir, "invoices.csv")
		write := func(name string, lines ...string) {
			if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(customers, "no,first,last,mail", "1,Zoë,\"O'Neil, jr\",zoe@example.org", "2,,Łukasz,", "3,=HYPERLINK(1),x,")
		write(invoices, "number,who,total,code,when", "a,1,0.01,USD,2026-01-31 09:30:00", "b,2,7,JPY,", "c,3,1.234,KWD,", "d,1,92233720368547758.07,USD,")
		importTwice(t, w, load{
			customers: customers, invoices: invoices,
			maps: []string{
				"customers.reference=no", "customers.name=first+last", "customers.email=mail",
				"invoices.reference=number", "invoices.customer=who", "invoices.amount=total", "invoices.currency=code", "invoices.issuedAt=when",
			},
			wantCustomers: 3, wantInvoices: 4, wantSum: -1,
		})
	})
}

// run imports into a tenant once and returns the summary, and what was said about
// rows that were not loaded.
func (l load) run(t *testing.T, w *world, owner caller, tenant string) (s importer.Summary, text, complaints string, err error) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(owner.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	c := importer.Command{
		Gateway: w.gateways[0], TokenFile: token, Tenant: tenant, Currency: l.currency,
		Customers: l.customers, Invoices: l.invoices, Map: l.maps, Parallel: 8, RetryFor: time.Minute, JSON: true,
	}
	err = c.Import(t.Context(), &out, &log)
	if broken := json.Unmarshal(out.Bytes(), &s); broken != nil {
		t.Fatalf("import: %v; the summary is not JSON: %v\n%s%s", err, broken, out.String(), log.String())
	}
	return s, out.String(), log.String(), err
}

func importTwice(t *testing.T, w *world, l load) {
	owner := w.newUser(t)
	tenant := w.newTenant(t, owner)
	run := func() (importer.Summary, string) {
		s, text, complaints, err := l.run(t, w, owner, tenant)
		if err != nil {
			t.Fatalf("import: %v\n%s%s", err, text, complaints)
		}
		return s, text
	}
	check := func(when string, s importer.Summary, text string, created bool) {
		wantCustomers, wantInvoices, there := int64(l.wantCustomers), int64(l.wantInvoices), int64(0)
		if !created {
			wantCustomers, wantInvoices = 0, 0
			there = int64(l.wantInvoices)
		}
		if !s.Complete || s.Changed != created || s.Customers.Rows != int64(l.wantCustomers) || s.Customers.Created != wantCustomers ||
			s.Invoices.Rows != int64(l.wantInvoices) || s.Invoices.Created != wantInvoices || s.Invoices.AlreadyThere != there {
			t.Fatalf("%s run: %s", when, text)
		}
		if l.wantSum >= 0 && (len(s.Invoices.Sums) != 1 || s.Invoices.Sums[0].Loaded.Minor != json.Number(path(l.wantSum)[1:])) {
			t.Fatalf("%s run: the sum is not %d: %s", when, l.wantSum, text)
		}
	}
	content := func() string {
		var all strings.Builder
		for _, list := range []string{"customers", "invoices"} {
			items := walk(t, owner, path("tenants", tenant, list), "", 7, nil)
			raw, err := json.Marshal(items)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(raw)
		}
		return all.String()
	}

	first, text := run()
	check("first", first, text, true)
	loaded := content()
	var sum int64
	invoices := walk(t, owner, path("tenants", tenant, "invoices"), "sort=-createdAt", 50, nil)
	for _, item := range invoices {
		n, err := item["amountMinor"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if len(invoices) != l.wantInvoices || l.wantSum >= 0 && sum != l.wantSum {
		t.Fatalf("a walk finds %d invoices and the sum %d", len(invoices), sum)
	}
	if n := len(walk(t, owner, path("tenants", tenant, "customers"), "", 50, nil)); n != l.wantCustomers {
		t.Fatalf("a walk finds %d customers", n)
	}

	second, text := run()
	check("second", second, text, false)
	if content() != loaded {
		t.Fatal("the second run changed something")
	}
	owner.get(t, path("tenants", tenant)).want(t, http.StatusOK)
}
