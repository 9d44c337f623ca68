package importer

import (
	"errors"
	"strings"
	"testing"
)

func invoiceParser(t *testing.T, header string) *parser {
	t.Helper()
	maps, err := parseMaps([]string{"invoices.customerId=customerId"}, customers(), invoices())
	if err != nil {
		t.Fatal(err)
	}
	flags := maps["invoices"]
	if !strings.Contains(header, "customerId") {
		flags = nil
	}
	l, err := bind(invoices(), strings.Split(header, ","), flags)
	if err != nil {
		t.Fatal(err)
	}
	return &parser{layout: l, tenant: "T9", currency: "USD", customer: func(reference string) (int64, error) {
		if reference == "A" {
			return 4, nil
		}
		return 0, errors.New("there is no such customer")
	}}
}

func TestInvoiceRows(t *testing.T) {
	for _, test := range []struct{ header, record, body, code string }{
		{"customerReference,amount", "A,1.98", `{"amountMinor":198,"currency":"USD","customerId":4}`, ""},
		{"customerReference,amount,currency", "A,1980,JPY", `{"amountMinor":1980,"currency":"JPY","customerId":4}`, ""},
		{"customerReference,amount,currency", "A,1.98,", `{"amountMinor":198,"currency":"USD","customerId":4}`, ""},
		{"customerReference,amount,amountMinor", "A,1.98,198", `{"amountMinor":198,"currency":"USD","customerId":4}`, ""},
		{"customerReference,amount,amountMinor", "A,,198", `{"amountMinor":198,"currency":"USD","customerId":4}`, ""},
		{"customerReference,amount,amountMinor", "A,1.98,199", "", codeAmount},
		{"customerReference,amount,amountMinor", "A,1.98,1.98", "", codeAmount},
		{"customerReference,amount,amountMinor", "A,,", "", codeMissing},
		{"customerReference,amount,currency", "A,1.98,usd", "", codeCurrency},
		{"customerReference,amount", "B,1.98", "", codeCustomer},
		{"customerReference,amount", ",1.98", "", codeMissing},
		{"customerReference,customerId,amount", ",7,1.98", `{"amountMinor":198,"currency":"USD","customerId":7}`, ""},
		{"customerReference,customerId,amount", "A,4,1.98", `{"amountMinor":198,"currency":"USD","customerId":4}`, ""},
		{"customerReference,customerId,amount", "A,7,1.98", "", codeCustomer},
		{"customerReference,customerId,amount", ",0,1.98", "", codeNumber},
		{"customerReference,amount,internal.costMinor,internal.note", "A,1.98,-5,'@x", `{"amountMinor":198,"currency":"USD","customerId":4,"internal":{"costMinor":-5,"note":"@x"}}`, ""},
		{"customerReference,amount,internal.costMinor", "A,1.98,5.0", "", codeNumber},
		{"customerReference,amount,reference,memo,status,issuedAt", "A,0,'-1,'tis,paid,2026-11-30", `{"amountMinor":0,"currency":"USD","customerId":4,"issuedAt":"2026-11-30T00:00:00Z","memo":"'tis","reference":"-1","status":"paid"}`, ""},
		{"customerReference,amount,issuedAt", "A,0,30.11.2026", "", codeTime},
		{"customerReference,amount,memo", "A,0,a\xff", "", codeEncoding},
		{"customerReference,amount", "A,0,x", "", codeColumns},
		{"customerReference,amount,memo,internal.note", "A,0," + strings.Repeat("m", maxBody/2) + "," + strings.Repeat("n", maxBody/2), "", codeTooLarge},
	} {
		r, err := invoiceParser(t, test.header).parse(strings.Split(test.record, ","), 7)
		code := ""
		if bad := (*rowError)(nil); errors.As(err, &bad) {
			code = bad.code
			if bad.line != 7 {
				t.Errorf("%s: line %d", quote(test.record), bad.line)
			}
		}
		if code != test.code || string(r.body) != test.body && code != codeTooLarge {
			t.Errorf("%s: %s, code %q (%v), want %s, code %q", quote(test.record), quote(string(r.body)), code, err, test.body, test.code)
		}
	}
	p := invoiceParser(t, "customerReference,amount")
	p.currency = ""
	if _, err := p.parse([]string{"A", "1"}, 2); err == nil || !strings.Contains(err.Error(), "--currency is not given") {
		t.Errorf("without any currency: %v", err)
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2021-01-01 00:00:00":               "2021-01-01T00:00:00Z",
		"2021-01-01":                        "2021-01-01T00:00:00Z",
		"2021-01-01T00:00:00Z":              "2021-01-01T00:00:00Z",
		"2021-01-01T00:00:00+05:30":         "2020-12-31T18:30:00Z",
		"2021-01-01T00:00:00.120000Z":       "2021-01-01T00:00:00.12Z",
		"2021-01-01 10:00:00.5":             "2021-01-01T10:00:00.5Z",
		"2024-02-29":                        "2024-02-29T00:00:00Z",
		"2021-01-01T00:00:00.0000001Z":      "",
		"2023-02-29":                        "",
		"2021-01-01 24:00:00":               "",
		"2021-1-1":                          "",
		"01/02/2021":                        "",
		"2021-01-01 ":                       "",
		"9999-12-31T23:59:59-01:00":         "",
		"0000-01-01":                        "",
		"1609459200":                        "",
		"2021-01-01T00:00:00":               "",
		"2021-01-01T00:00:00.000000000000Z": "2021-01-01T00:00:00Z",
	} {
		got, err := parseTime(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// A new form of the keys would load rows again that an older celld has loaded.
func TestKeysAreStable(t *testing.T) {
	p := invoiceParser(t, "customerReference,amount,reference")
	for record, want := range map[string]string{
		"A,1.98,17": "celld-import-invoices-93a48fdbc9d2a07b7940a2f4714674117caf5542",
		"A,1.98,":   "celld-import-invoices-1ab25ec5f313bdc97f02e6aca1d92ca665dd2dd7",
	} {
		r, err := p.parse(strings.Split(record, ","), 2)
		if err != nil || r.key != want {
			t.Errorf("%s: key %s, %v, want %s", record, r.key, err, want)
		}
	}
	same, _ := p.parse([]string{"A", "5", "17"}, 3)
	first, _ := p.parse([]string{"A", "1.98", "17"}, 2)
	if same.key != first.key {
		t.Error("the key of a row with a reference depends on more than that")
	}
	p.tenant = "T8"
	if other, _ := p.parse([]string{"A", "1.98", "17"}, 2); other.key == first.key {
		t.Error("two tenants share a key")
	}
}
