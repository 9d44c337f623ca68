package importer

import (
	"os"
	"path/filepath"
	"testing"
)

// The example of docs/importing.md with the data that it is made for, which lies
// beside the repository and is not part of it.
func TestChinook(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "chinook")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the Chinook files are not here: %v", err)
	}
	f := newFakeAPI(t)
	f.page = 200
	c := command(t, f)
	c.Parallel = 16
	c.Customers, c.Invoices = filepath.Join(dir, "customers.csv"), filepath.Join(dir, "invoices.csv")
	c.Map = []string{
		"customers.reference=CustomerId", "customers.name=FirstName+LastName", "customers.email=Email", "customers.country=Country",
		"invoices.reference=InvoiceId", "invoices.customer=CustomerId", "invoices.amount=Total", "invoices.issuedAt=InvoiceDate",
	}
	first := importing(t, t.Context(), c, realClock())
	if first.code != 0 || first.Summary.Customers.Created != 59 || first.Summary.Invoices.Created != 412 {
		t.Fatalf("first run: %v\n%s\n%s", first.err, first.text, first.stderr)
	}
	if sum := first.Summary.Invoices.Sums; len(sum) != 1 || sum[0].Created != (Sum{"232860", "2328.60"}) {
		t.Errorf("sums %+v", sum)
	}
	var total int64
	for _, item := range f.items("invoices") {
		minor, ok := item["amountMinor"].(interface{ Int64() (int64, error) })
		if !ok {
			t.Fatalf("invoice %v", item)
		}
		n, err := minor.Int64()
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 232860 {
		t.Errorf("the invoices add up to %d", total)
	}
	f.forget()
	second := importing(t, t.Context(), c, realClock())
	if second.code != 0 || second.Changed || second.Summary.Customers.AlreadyThere != 59 || second.Summary.Invoices.AlreadyThere != 412 {
		t.Errorf("second run: %v\n%s\n%s", second.err, second.text, second.stderr)
	}
}
