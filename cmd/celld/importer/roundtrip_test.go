package importer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A file with the columns of an export (design section 10.5) needs no flags: it
// loads into another tenant, and changes nothing in its own.
func TestExportComesBack(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Currency = ""
	c.Customers = file(t, "customers.csv", "tenantId,customerId,version,reference,name,email,country,createdAt,updatedAt\r\n"+
		"T7,40,1,C-1,'=Ann,,DE,2026-11-30T00:00:00Z,2026-11-30T00:00:00Z\r\n"+
		"T7,41,1,'-2,\"Böb, \"\"B\"\"\",b@example.com,,2026-11-30T00:00:00Z,2026-11-30T00:00:00Z\r\n")
	memos := []string{"line\r\nline", "'=quoted", "\tтаб", "''", ""}
	var rows strings.Builder
	rows.WriteString("tenantId,invoiceId,version,customerId,customerReference,amountMinor,amount,currency,reference,memo,status,issuedAt,createdAt,updatedAt,internal.costMinor,internal.note\r\n")
	for i, memo := range memos {
		fmt.Fprintf(&rows, "T7,%d,5,41,'-2,%d,%s,KWD,R%d,\"%s\",paid,2026-11-30T00:00:00.000001Z,,,7,'+note\r\n",
			i+1, 1000+i, FormatAmount(int64(1000+i), 3), i, escapeText(memo))
	}
	c.Invoices = file(t, "invoices.csv", rows.String())
	if r := importing(t, t.Context(), c, realClock()); r.code != 0 || r.Summary.Invoices.Created != len64(memos) {
		t.Fatalf("%v: %s", r.err, r.stderr)
	}
	for _, item := range f.items("customers") {
		if item["reference"] == "C-1" && item["name"] != "=Ann" || item["reference"] == "-2" && item["name"] != `Böb, "B"` {
			t.Errorf("customer %v", item)
		}
	}
	found := 0
	for _, item := range f.items("invoices") {
		for i, memo := range memos {
			if item["reference"] != fmt.Sprintf("R%d", i) {
				continue
			}
			found++
			got, _ := item["memo"].(string)
			internal, _ := item["internal"].(map[string]any)
			if got != memo || item["amountMinor"] != json.Number(fmt.Sprint(1000+i)) || internal["note"] != "+note" || internal["costMinor"] != json.Number("7") {
				t.Errorf("invoice %v", item)
			}
		}
	}
	if found != len(memos) {
		t.Errorf("%d invoices", found)
	}
	f.forget()
	if r := importing(t, t.Context(), c, realClock()); r.code != 0 || r.Changed || r.Summary.Invoices.AlreadyThere != len64(memos) {
		t.Errorf("again: %v %s", r.err, r.stderr)
	}
}

func len64[T any](s []T) int64 { return int64(len(s)) }

func TestByteOrderMarkAndCRLF(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Customers = "testdata/bom-crlf.csv"
	r := importing(t, t.Context(), c, realClock())
	if got := r.Summary.Customers; r.code != 0 || got.Created != 2 || got.NoReference != 1 {
		t.Errorf("%v: %+v %s", r.err, got, r.stderr)
	}
	for _, item := range f.items("customers") {
		if _, given := item["email"]; given != (item["name"] == "Bob") {
			t.Errorf("customer %v", item)
		}
	}
}

// Somebody else takes a reference, or uses up a key, between the look at what is
// there and the request.
func TestTakenMeanwhile(t *testing.T) {
	f := newFakeAPI(t)
	c := command(t, f)
	c.Customers = file(t, "c.csv", "reference,name\nA,Ann\n")
	if r := importing(t, t.Context(), c, realClock()); r.code != 0 {
		t.Fatal(r.err)
	}
	// The customer gets another reference; the row's key still answers with it.
	f.set("customers", 1, "reference", "A-2")
	if r := importing(t, t.Context(), c, realClock()); r.code != 0 || r.Summary.Customers.AlreadyThere != 1 || r.Changed {
		t.Errorf("replayed: %v %+v", r.err, r.Summary.Customers)
	}
	c.Customers = file(t, "c.csv", "reference,name\nA,Another\n")
	if r := importing(t, t.Context(), c, realClock()); r.code != exitIncomplete || !strings.Contains(r.stderr, "other content was loaded not long ago") {
		t.Errorf("key reused: %v %s", r.err, r.stderr)
	}
}
