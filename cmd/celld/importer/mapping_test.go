package importer

import (
	"slices"
	"strings"
	"testing"
)

func TestBind(t *testing.T) {
	for _, test := range []struct {
		name   string
		kind   *kind
		header string
		flags  []string
		want   string // field=columns, in the kind's order
		fault  string
	}{
		{"by name", customers(), "customerId,name,email,reference", nil, "reference=3 name=1 email=2", ""},
		{"case matters", customers(), "Name", nil, "", `no column is mapped to customers.name; the file has the columns "Name"`},
		{"says how", invoices(), "amount", nil, "", "say which with --map invoices.customer=COLUMN"},
		{"semicolons", customers(), "reference;name", nil, "", "separated by commas"},
		{"joined", customers(), "First,Last", []string{"customers.name=First+Last"}, "name=0,1", ""},
		{"a plus in the header", customers(), "First+Last,First,Last", []string{"customers.name=First+Last"}, "name=0", ""},
		{"flag wins over name", customers(), "name,N", []string{"customers.name=N"}, "name=1", ""},
		{"not loaded", customers(), "name,email", []string{"customers.email="}, "name=0", ""},
		{"required not loaded", customers(), "name,email", []string{"customers.name="}, "", "no column is mapped"},
		{"missing", customers(), "name", []string{"customers.email=Mail"}, "", `there is no column "Mail" for email`},
		{"missing part", customers(), "First", []string{"customers.name=First+Last"}, "", `there is no column "Last"`},
		{"twice in the header", customers(), "name,x,name", nil, "", `columns 1 and 3 are both named "name"`},
		{"an equals sign in the header", customers(), "a=b", []string{"customers.name=a=b"}, "name=0", ""},
		{"not UTF-8", customers(), "name,\xff", nil, "", "column 2 is not valid UTF-8"},
		{"export", invoices(), "tenantId,invoiceId,version,customerId,customerReference,amountMinor,amount,currency,reference,memo,status,issuedAt,createdAt,updatedAt,internal.costMinor,internal.note", nil,
			"reference=8 customer=4 amount=6 amountMinor=5 currency=7 memo=9 status=10 issuedAt=11 internal.costMinor=14 internal.note=15", ""},
		{"by id, when asked", invoices(), "customerId,amount", []string{"invoices.customerId=customerId"}, "customerId=0 amount=1", ""},
		{"never by id unasked", invoices(), "customerId,amount", nil, "", "no column is mapped to invoices.customer or customerId"},
		{"amounts are not joined", invoices(), "customerReference,a,b", []string{"invoices.amount=a+b"}, "", "amount is one column"},
		{"date and time", invoices(), "customerReference,amount,d,t", []string{"invoices.issuedAt=d+t"}, "customer=0 amount=1 issuedAt=2,3", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			maps, err := parseMaps(test.flags, customers(), invoices())
			if err != nil {
				t.Fatal(err)
			}
			l, err := bind(test.kind, strings.Split(test.header, ","), maps[test.kind.name])
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("error %v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(l); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func describe(l *layout) string {
	var parts []string
	for _, b := range l.bindings {
		var columns []string
		for _, column := range b.columns {
			columns = append(columns, string("0123456789abcdef"[column]))
		}
		at := strings.Join(columns, ",")
		at = strings.NewReplacer("a", "10", "b", "11", "c", "12", "d", "13", "e", "14", "f", "15").Replace(at)
		parts = append(parts, b.name+"="+at)
	}
	return strings.Join(parts, " ")
}

func TestParseMapsRefuses(t *testing.T) {
	for flag, want := range map[string]string{
		"":                      "want kind.field=Header",
		"customers":             "want kind.field=Header",
		"customers.name":        "want kind.field=Header",
		"customers=Name":        "want kind.field=Header",
		"orders.name=Name":      "the kind is customers or invoices",
		"customers.amount=A":    "customers have the fields reference, name, email, country",
		"invoices.internal=A":   "invoices have the fields",
		"customers.name=\xff":   "not valid UTF-8",
		"Customers.name=Name":   "the kind is customers or invoices",
		"customers.name =Name":  "customers have the fields",
		"invoices.internal.x=A": "invoices have the fields",
	} {
		_, err := parseMaps([]string{flag}, customers(), invoices())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", flag, err, want)
		}
	}
	if _, err := parseMaps([]string{"customers.name=A", "customers.name=B"}, customers(), invoices()); err == nil {
		t.Error("a field can be mapped twice")
	}
}

func FuzzMapping(f *testing.F) {
	f.Add("customers.name=First+Last", "First,Last")
	f.Add("invoices.internal.note=N", "customerReference,amount,N")
	f.Add("customers.name=+", ",name")
	f.Fuzz(func(t *testing.T, flag, header string) {
		maps, err := parseMaps([]string{flag}, customers(), invoices())
		if err != nil {
			return
		}
		names := strings.Split(header, ",")
		for _, k := range []*kind{customers(), invoices()} {
			l, err := bind(k, names, maps[k.name])
			if err != nil {
				continue
			}
			for _, b := range l.bindings {
				if len(b.columns) == 0 || slices.Max(b.columns) >= l.width {
					t.Fatalf("%q on %q: %s has the columns %v", flag, header, b.name, b.columns)
				}
				b.cell(names)
			}
		}
	})
}
