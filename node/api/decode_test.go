package api

import (
	"bytes"
	"math"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"celld/raftfsm/cellfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

func TestDecodeInvoice(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	base := `"customerId":4,"amountMinor":1250,"currency":"USD"`
	for _, c := range []struct {
		body, slug string // "" is accepted
		kind       fault.Kind
	}{
		{`{` + base + `}`, "", 0},
		{`{` + base + `,"reference":"R","memo":"a\tb\r\nc","status":"paid","issuedAt":"2009-01-01T00:00:00Z","internal":{"costMinor":0,"note":""}}`, "", 0},
		{`{` + base + `,"internal":{}}`, "", 0},
		{`{` + base + `,"memo":` + long(2000) + `}`, "", 0},
		{`{"customerId":4,"amountMinor":9223372036854775807,"currency":"KWD"}`, "", 0},
		{`{"customerId":4,"amountMinor":-0,"currency":"KWD"}`, "", 0},
		{`{"customerId":4,"amountMinor":-1,"currency":"USD"}`, "invalid-amount", fault.Impossible},
		{`{"customerId":4,"amountMinor":9223372036854775808,"currency":"USD"}`, "invalid-amount", fault.Impossible},
		{`{"customerId":4,"amountMinor":-99999999999999999999,"currency":"USD"}`, "invalid-amount", fault.Impossible},
		{`{"customerId":4,"amountMinor":1.5,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":1e3,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":"5","currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":true,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":{},"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":null,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":-4,"currency":"XXL"}`, "invalid-field", fault.Invalid}, // malformed goes before impossible
		{`{"customerId":0,"amountMinor":5,"currency":"USD"}`, "unknown-customer", fault.Impossible},
		{`{"customerId":99999999999999999999,"amountMinor":5,"currency":"USD"}`, "unknown-customer", fault.Impossible},
		{`{"customerId":"4","amountMinor":5,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{"customerId":4,"amountMinor":5,"currency":"usd"}`, "unknown-currency", fault.Impossible},
		{`{"customerId":4,"amountMinor":5,"currency":""}`, "unknown-currency", fault.Impossible},
		{`{"customerId":4,"amountMinor":5,"currency":"USD "}`, "unknown-currency", fault.Impossible},
		{`{"customerId":4,"amountMinor":5,"currency":5}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"status":"Paid"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"reference":""}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"reference":` + long(101) + `}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"memo":` + long(2001) + `}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"memo":"a\u0000b"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"memo":"a\u0085b"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"issuedAt":"2009-01-01"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"issuedAt":"2009-01-01T00:00:00+01:00"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"issuedAt":"2009-01-01T00:00:00.0000001Z"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"issuedAt":"2009-02-30T00:00:00Z"}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"internal":{"costMinor":-1}}`, "invalid-amount", fault.Impossible},
		{`{` + base + `,"internal":{"cost":1}}`, "unknown-field", fault.Invalid},
		{`{` + base + `,"internal":[]}`, "invalid-field", fault.Invalid},
		{`{` + base + `,"version":1}`, "unknown-field", fault.Invalid},
		{`{` + base + `,"expectedVersion":1}`, "unknown-field", fault.Invalid}, // of an update alone
		{`{` + base + `,"Memo":"x"}`, "unknown-field", fault.Invalid},
		{`{` + base + `,"currency":"USD"}`, "invalid-field", fault.Invalid},
		{`{` + base + `}{}`, "malformed-json", fault.Invalid},
		{`[]`, "malformed-json", fault.Invalid},
		{``, "malformed-json", fault.Invalid},
		{"{" + base + ",\"memo\":\"\xff\"}", "malformed-json", fault.Invalid},
		{"{" + base + ",\"memo\":\"a\x00\"}", "malformed-json", fault.Invalid},
	} {
		_, err := decodeCreateInvoice([]byte(c.body))
		e := fault.As(err)
		if c.slug == "" && err != nil || c.slug != "" && (err == nil || e.Slug != c.slug || e.Kind != c.kind) {
			t.Errorf("%.120q: %v, want %q", c.body, err, c.slug)
		}
	}
	got, version, err := decodeUpdateInvoice([]byte(`{` + base + `,"expectedVersion":5,"internal":{}}`))
	if err != nil || version == nil || version.value != 5 || got.Internal == nil || got.Status != nil || got.Fields.Exponent != 2 {
		t.Errorf("%+v %+v %v", got, version, err)
	}
}

func TestDecodeCustomer(t *testing.T) {
	for body, slug := range map[string]string{
		`{"name":"A"}`: "",
		`{"name":"François Tremblay","reference":"3","email":"ftremblay@gmail.com","country":"Canada"}`: "",
		`{"name":""}`: "invalid-field", `{"name":" \t"}`: "invalid-field", `{}`: "invalid-field", `{"name":5}`: "invalid-field",
		`{"name":"A","email":"a"}`: "invalid-field", `{"name":"A","email":"@b"}`: "invalid-field", `{"name":"A","email":"a@"}`: "invalid-field", `{"name":"A","email":"a b@c"}`: "invalid-field",
		`{"name":"A","country":""}`: "invalid-field", `{"name":"A","phone":"1"}`: "unknown-field",
		`{"name":"` + strings.Repeat("x", 200) + `"}`: "", `{"name":"` + strings.Repeat("x", 201) + `"}`: "invalid-field",
	} {
		_, err := decodeCreateCustomer([]byte(body))
		if slug == "" && err != nil || slug != "" && (err == nil || fault.As(err).Slug != slug) {
			t.Errorf("%.80q: %v, want %q", body, err, slug)
		}
	}
}

func TestExpected(t *testing.T) {
	five := &integer{5, true}
	for _, c := range []struct {
		header []string
		body   *integer
		want   cellfsm.Version
		kind   fault.Kind
	}{
		{[]string{`"5"`}, nil, 5, 0}, {nil, five, 5, 0}, {[]string{`"5"`}, five, 5, 0},
		{nil, nil, 0, fault.PreconditionRequired},
		{[]string{`"6"`}, five, 0, fault.Invalid}, {[]string{`"5"`, `"5"`}, nil, 0, fault.Invalid}, {[]string{`5`}, nil, 0, fault.Invalid},
		{[]string{`*`}, nil, 0, fault.Invalid}, {[]string{`W/"5"`}, nil, 0, fault.Invalid}, {[]string{`"05"`}, nil, 0, fault.Invalid},
		{[]string{`"5", "6"`}, nil, 0, fault.Invalid}, {[]string{`""`}, nil, 0, fault.Invalid}, {[]string{``}, nil, 0, fault.Invalid}, {[]string{`"-5"`}, nil, 0, fault.Invalid},
		{[]string{`"9223372036854775808"`}, nil, 0, fault.Invalid}, {nil, &integer{0, true}, 0, fault.Invalid}, {nil, &integer{-1, true}, 0, fault.Invalid}, {nil, &integer{0, false}, 0, fault.Invalid},
	} {
		h := http.Header{}
		if c.header != nil {
			h["If-Match"] = c.header
		}
		got, err := expected(h, c.body)
		if got != c.want || (err != nil) != (c.kind != 0) || err != nil && fault.Of(err) != c.kind {
			t.Errorf("%q %+v: %d, %v", c.header, c.body, got, err)
		}
	}
}

func TestFreshness(t *testing.T) {
	for given, ok := range map[string]bool{
		"1.0": true, "3.17": true, "1": false, "": false, "1.": false, ".1": false, "0.1": false, "01.1": false, "1.01": false, "1.+1": false,
		"1.1.1": false, "-1.1": false, "1.9223372036854775807": true, "1.9223372036854775808": false, "1,2": false,
	} {
		f, err := parseFreshness(http.Header{HeaderMinIndex: {given}})
		if (err == nil) != ok || ok && !f.min {
			t.Errorf("%q: %+v, %v", given, f, err)
		}
	}
	for _, given := range [][]string{{"fresh"}, {""}, {"stale", "stale"}} {
		if _, err := parseFreshness(http.Header{HeaderConsistency: given}); fault.Of(err) != fault.Invalid {
			t.Errorf("%q: %v", given, err)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, s := range []string{"1970-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z"} {
		micros, ok := parseTime(s)
		if !ok || timeText(micros) != s {
			t.Errorf("%s became %s, %t", s, timeText(micros), ok)
		}
	}
}

func TestRevisions(t *testing.T) {
	var v revisions
	s := tenant.Scope{UID: "u", Actor: "U7", Revision: 5}
	at := func(actor tenant.UserID, r tenant.Revision) bool {
		s.Actor, s.Revision = actor, r
		return v.admit(s)
	}
	if !at("U7", 5) || at("U7", 4) || !at("U7", 6) || at("U7", 5) || !at("U9", 1) {
		t.Error("the highest revision does not stand")
	}
	// Two generations stay: what was seen less than keptRevisions ago is known.
	for i := range keptRevisions {
		s := tenant.Scope{UID: "u", Actor: tenant.UserID(strings.Repeat("x", 1+i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/182)), Revision: 1}
		v.admit(s)
	}
	if at("U7", 5) {
		t.Error("a revision was forgotten too early")
	}
	if n := len(v.young) + len(v.old); n > 2*keptRevisions {
		t.Errorf("%d are kept", n)
	}
}

func testSealer(t testing.TB, uid tenant.UID, route string, filter any, sort string) *sealer {
	t.Helper()
	s, err := newSealer(cellfsm.Tenant{UID: uid, Secret: bytes.Repeat([]byte{1}, 32)}, route, filter, sort)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCursor(t *testing.T) {
	status := cellfsm.Paid
	s := testSealer(t, "u", "listInvoices", cellfsm.InvoiceFilter{}, "invoiceId")
	for _, id := range []int64{1, 17, math.MaxInt64} {
		if got, err := s.open(s.seal(id)); err != nil || got != id {
			t.Errorf("%d became %d, %v", id, got, err)
		}
	}
	text := s.seal(17)
	if len(text) != maxCursor {
		t.Errorf("%d characters, %d expected", len(text), maxCursor)
	}
	for name, other := range map[string]*sealer{
		"tenant": testSealer(t, "v", "listInvoices", cellfsm.InvoiceFilter{}, "invoiceId"),
		"route":  testSealer(t, "u", "listCustomers", cellfsm.InvoiceFilter{}, "invoiceId"),
		"filter": testSealer(t, "u", "listInvoices", cellfsm.InvoiceFilter{Status: &status}, "invoiceId"),
		"sort":   testSealer(t, "u", "listInvoices", cellfsm.InvoiceFilter{}, "createdAt"),
	} {
		if _, err := other.open(text); fault.As(err) == nil || fault.As(err).Slug != "invalid-cursor" {
			t.Errorf("a cursor of another %s: %v", name, err)
		}
	}
	for i := range len(text) {
		for bit := range 8 {
			flipped := []byte(text)
			flipped[i] ^= 1 << bit
			if _, err := s.open(string(flipped)); err == nil {
				t.Fatalf("bit %d of character %d flipped, and accepted", bit, i)
			}
		}
	}
	for _, bad := range []string{"", text + "A", text[:len(text)-1], text + "=", "\n" + text[1:], text[:10] + "\n" + text[10:]} {
		if _, err := s.open(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// The form of a cursor outlives a release: one that was handed out before an
// upgrade still works after it.
func TestCursorBytesArePinned(t *testing.T) {
	s := testSealer(t, "u", "listInvoices", cellfsm.InvoiceFilter{}, "invoiceId")
	const old = "Aai6i7-77ziNmpT366xepeTcyF8fd6oDekh_9M5x6sXrWLTUAQ"
	if id, err := s.open(old); err != nil || id != 17 {
		t.Errorf("%d, %v; a new one: %s", id, err, s.seal(17))
	}
}

func FuzzCursor(f *testing.F) {
	s := testSealer(f, "u", "listInvoices", cellfsm.InvoiceFilter{}, "invoiceId")
	f.Add(s.seal(17))
	f.Add(strings.Repeat("A", maxCursor))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := s.open(text)
		if err != nil && fault.Of(err) != fault.Invalid {
			t.Fatalf("%q: %v", text, err)
		}
		// Nobody finds the key: what opens is a seed.
		if err == nil && id != 17 {
			t.Fatalf("%q opened as %d", text, id)
		}
	})
}

// FuzzDecode: whatever is sent, the answer is a decoded command or a refusal of
// the caller's, and what is accepted is text that may be stored.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"customerId":4,"amountMinor":1250,"currency":"USD","memo":"x","internal":{"costMinor":1,"note":"n"}}`,
		`{"name":"A","email":"a@b","expectedVersion":1}`, `{"name":"\ud800"}`, `{"customerId":1e9}`, "{", "\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		invoice, err1 := decodeCreateInvoice(raw)
		_, _, err2 := decodeUpdateInvoice(raw)
		customer, err3 := decodeCreateCustomer(raw)
		_, _, err4 := decodeUpdateCustomer(raw)
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil && fault.Of(err) != fault.Invalid && fault.Of(err) != fault.Impossible {
				t.Fatalf("%q: %v", raw, err)
			}
		}
		if err1 == nil && (invoice.Fields.Amount < 0 || invoice.Fields.Customer < 1 || invoice.Fields.Memo != nil && !utf8.ValidString(*invoice.Fields.Memo)) {
			t.Fatalf("%q became %+v", raw, invoice)
		}
		if err3 == nil && (customer.Fields.Name == "" || strings.ContainsRune(customer.Fields.Name, 0)) {
			t.Fatalf("%q became %+v", raw, customer)
		}
	})
}

// FuzzIDs: a number in a path or an ETag has one spelling.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"1", "017", "-1", "+1", "9223372036854775807", "9223372036854775808", "1e3", " 1", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := parsePositive(s)
		if ok && (id < 1 || s != (&call{}).path("", id)[len("/tenants///"):]) {
			t.Fatalf("%q is %d", s, id)
		}
	})
}
