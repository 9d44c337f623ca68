package importer

import "strings"

// field is one thing that a column can be mapped to.
type field struct {
	name   string // as in --map and, unless header says otherwise, in a file's header
	header string // the header that is mapped by default; "" for none
	sent   int    // index of the value that it becomes, in kind.sent
	text   bool   // free text, which an export may have escaped
	joins  bool   // may be made of several columns
}

// value is one field of an object as the API sees it.
type value struct {
	name     string // the API's name; a dot means an object inside the object
	number   bool
	assigned bool // the server may fill it in or move it on, so "not given" equals anything
}

// kind is one of the two kinds of files.
type kind struct {
	name     string // also the last part of the list's path
	noun     string
	idName   string
	fields   []field
	sent     []value
	required [][]string // of each group one field at least has to be mapped
}

// Indices into kind.sent. Every kind has its reference first.
const (
	atReference = 0

	atName    = 1
	atEmail   = 2
	atCountry = 3

	atCustomer = 1
	atMinor    = 2
	atCurrency = 3
	atMemo     = 4
	atStatus   = 5
	atIssued   = 6
	atCost     = 7
	atNote     = 8
)

func customers() *kind {
	return &kind{
		name: "customers", noun: "customer", idName: "customerId",
		sent: []value{{name: "reference"}, {name: "name"}, {name: "email"}, {name: "country"}},
		fields: []field{
			{name: "reference", header: "reference", sent: atReference, text: true, joins: true},
			{name: "name", header: "name", sent: atName, text: true, joins: true},
			{name: "email", header: "email", sent: atEmail, text: true, joins: true},
			{name: "country", header: "country", sent: atCountry, text: true, joins: true},
		},
		required: [][]string{{"name"}},
	}
}

func invoices() *kind {
	return &kind{
		name: "invoices", noun: "invoice", idName: "invoiceId",
		sent: []value{
			{name: "reference"},
			{name: "customerId", number: true},
			{name: "amountMinor", number: true},
			{name: "currency"},
			{name: "memo"},
			{name: "status", assigned: true},
			{name: "issuedAt", assigned: true},
			{name: "internal.costMinor", number: true},
			{name: "internal.note"},
		},
		fields: []field{
			{name: "reference", header: "reference", sent: atReference, text: true, joins: true},
			{name: "customer", header: "customerReference", sent: atCustomer, text: true, joins: true},
			// An id means something in the tenant that gave it only, so an
			// export of another tenant must not set it by default.
			{name: "customerId", sent: atCustomer},
			{name: "amount", header: "amount", sent: atMinor},
			{name: "amountMinor", header: "amountMinor", sent: atMinor},
			{name: "currency", header: "currency", sent: atCurrency},
			{name: "memo", header: "memo", sent: atMemo, text: true, joins: true},
			{name: "status", header: "status", sent: atStatus},
			{name: "issuedAt", header: "issuedAt", sent: atIssued, joins: true},
			{name: "internal.costMinor", header: "internal.costMinor", sent: atCost},
			{name: "internal.note", header: "internal.note", sent: atNote, text: true, joins: true},
		},
		required: [][]string{{"customer", "customerId"}, {"amount", "amountMinor"}},
	}
}

// field finds a field by its name in --map.
func (k *kind) field(name string) (field, bool) {
	for _, f := range k.fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (k *kind) fieldNames() string {
	names := make([]string, len(k.fields))
	for i, f := range k.fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}
