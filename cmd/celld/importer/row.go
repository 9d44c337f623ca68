package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bojanz/currency"
)

// maxBody is the largest request body that the API reads.
const maxBody = 256 << 10

// object is a customer or an invoice in the form in which a row and what the API
// answers can be compared: one text per value of the kind, "" for not given.
// Numbers are in decimal, times in RFC 3339 UTC without trailing zeros.
type object struct {
	id     int64
	values []string
}

// row is an object that a file asks for.
type row struct {
	object
	kind *kind
	line int
	body []byte
	key  string
	sum  digest
}

func (r *row) reference() string { return r.values[atReference] }

// rowError says why one row was not loaded. Code is a stable word for the report.
type rowError struct {
	line      int
	reference string
	code      string
	message   string
}

func (e *rowError) Error() string { return e.message }

// Codes of row errors that the importer itself finds. Other codes are the type
// of the problem that the API answered with.
const (
	codeSyntax    = "csv-syntax"
	codeColumns   = "wrong-column-count"
	codeEncoding  = "invalid-utf8"
	codeMissing   = "missing-value"
	codeAmount    = "invalid-amount"
	codeCurrency  = "unknown-currency"
	codeTime      = "invalid-time"
	codeNumber    = "invalid-number"
	codeCustomer  = "unknown-customer"
	codeTooLarge  = "row-too-large"
	codeDuplicate = "duplicate-row"
	codeDiffers   = "differs"
)

// parser turns records into rows.
type parser struct {
	layout   *layout
	tenant   string
	currency string // of rows without one; "" for none
	// customer finds the id of a customer by its reference; for invoices.
	customer func(reference string) (int64, error)
}

// parse makes a row of a record. The error is a *rowError; the row is never nil
// and then holds what could be read, for the report and the sums.
func (p *parser) parse(record []string, line int) (*row, error) {
	k := p.layout.kind
	r := &row{kind: k, line: line, object: object{values: make([]string, len(k.sent))}}
	if err := p.fill(r, record); err != nil {
		err.line, err.reference = line, r.reference()
		return r, err
	}
	return r, nil
}

func (p *parser) fill(r *row, record []string) *rowError {
	if len(record) != p.layout.width {
		return &rowError{code: codeColumns, message: fmt.Sprintf("has %d columns, the header has %d", len(record), p.layout.width)}
	}
	cells := make(map[string]string, len(p.layout.bindings))
	for _, b := range p.layout.bindings {
		cell := b.cell(record)
		if !utf8.ValidString(cell) {
			return &rowError{code: codeEncoding, message: fmt.Sprintf("%s is not valid UTF-8: %s", b.name, quote(cell))}
		}
		cells[b.name] = cell
		if r.kind.sent[b.sent].name == b.name && !r.kind.sent[b.sent].number {
			r.values[b.sent] = cell
		}
	}
	if r.kind.name == "invoices" {
		if err := p.invoice(r, cells); err != nil {
			return err
		}
	} else if r.values[atName] == "" {
		return &rowError{code: codeMissing, message: "has no name"}
	}
	r.body = r.render()
	if len(r.body) > maxBody {
		return &rowError{code: codeTooLarge, message: fmt.Sprintf("is larger than the %d bytes that the API accepts", maxBody)}
	}
	r.key = r.idempotencyKey(p.tenant)
	return nil
}

// invoice fills in what is not plain text.
func (p *parser) invoice(r *row, cells map[string]string) *rowError {
	if r.values[atCurrency] == "" {
		r.values[atCurrency] = p.currency
	}
	if err := r.amount(cells); err != nil {
		return err
	}
	if cost := cells["internal.costMinor"]; cost != "" {
		minor, err := parseMinor(cost)
		if err != nil {
			return &rowError{code: codeNumber, message: fmt.Sprintf("internal.costMinor %s %v", quote(cost), err)}
		}
		r.values[atCost] = strconv.FormatInt(minor, 10)
	}
	if issued := r.values[atIssued]; issued != "" {
		at, err := parseTime(issued)
		if err != nil {
			return &rowError{code: codeTime, message: fmt.Sprintf("issuedAt %s %v", quote(issued), err)}
		}
		r.values[atIssued] = at
	}
	return p.resolve(r, cells)
}

// amount sets the minor units from the decimal amount, from amountMinor, or from
// both if they agree.
func (r *row) amount(cells map[string]string) *rowError {
	code := r.values[atCurrency]
	if code == "" {
		return &rowError{code: codeMissing, message: "has no currency, and --currency is not given"}
	}
	digits, known := currency.GetDigits(code)
	if !known {
		return &rowError{code: codeCurrency, message: fmt.Sprintf("currency %s is not an ISO 4217 code", quote(code))}
	}
	decimal, minor := cells["amount"], cells["amountMinor"]
	if decimal == "" && minor == "" {
		return &rowError{code: codeMissing, message: "has no amount"}
	}
	if decimal != "" {
		n, err := ParseAmount(decimal, digits)
		if err != nil {
			return &rowError{code: codeAmount, message: fmt.Sprintf("amount %s in %s %v", quote(decimal), code, err)}
		}
		r.values[atMinor] = strconv.FormatInt(n, 10)
	}
	if minor != "" {
		n, err := parseMinor(minor)
		if err != nil {
			return &rowError{code: codeAmount, message: fmt.Sprintf("amountMinor %s %v", quote(minor), err)}
		}
		text := strconv.FormatInt(n, 10)
		if before := r.values[atMinor]; before != "" && before != text {
			r.values[atMinor] = ""
			return &rowError{code: codeAmount, message: fmt.Sprintf("amount %s is %s minor units of %s, but amountMinor is %s", quote(decimal), before, code, text)}
		}
		r.values[atMinor] = text
	}
	return nil
}

// resolve sets the customer's id from its reference, from its id, or from both if
// they agree.
func (p *parser) resolve(r *row, cells map[string]string) *rowError {
	reference, given := cells["customer"], cells["customerId"]
	if reference == "" && given == "" {
		return &rowError{code: codeMissing, message: "names no customer"}
	}
	if given != "" {
		id, err := parseMinor(given)
		if err != nil || id <= 0 {
			return &rowError{code: codeNumber, message: fmt.Sprintf("customerId %s is not a positive whole number", quote(given))}
		}
		given = strconv.FormatInt(id, 10)
		r.values[atCustomer] = given
	}
	if reference == "" {
		return nil
	}
	id, err := p.customer(reference)
	if err != nil {
		return &rowError{code: codeCustomer, message: err.Error()}
	}
	r.values[atCustomer] = strconv.FormatInt(id, 10)
	if given != "" && given != r.values[atCustomer] {
		return &rowError{code: codeCustomer, message: fmt.Sprintf("customer %s is customer %d, but customerId is %s", quote(reference), id, given)}
	}
	return nil
}

// render is the request body.
func (r *row) render() []byte {
	body := map[string]any{}
	for i, v := range r.kind.sent {
		text := r.values[i]
		if text == "" {
			continue
		}
		into, name := body, v.name
		if outer, inner, nested := strings.Cut(v.name, "."); nested {
			object, ok := body[outer].(map[string]any)
			if !ok {
				object = map[string]any{}
				body[outer] = object
			}
			into, name = object, inner
		}
		if v.number {
			into[name] = json.Number(text)
		} else {
			into[name] = text
		}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		// Strings and numbers that we formatted ourselves always encode.
		panic(fmt.Sprintf("importer: encoding a row: %v", err))
	}
	return encoded
}

// idempotencyKey is described in doc.go.
func (r *row) idempotencyKey(tenant string) string {
	h := sha256.New()
	h.Write([]byte("celld import 1\x00" + tenant + "\x00" + r.kind.name + "\x00"))
	if ref := r.reference(); ref != "" {
		h.Write([]byte("r" + ref))
	} else {
		content := sha256.Sum256(r.body)
		h.Write([]byte("c"))
		h.Write(content[:])
	}
	return "celld-import-" + r.kind.name + "-" + hex.EncodeToString(h.Sum(nil)[:20])
}

// timeForms are the accepted forms besides RFC 3339; they mean UTC.
var timeForms = [...]string{"2006-01-02 15:04:05", "2006-01-02"}

var errTime = errors.New("is not a time like 2026-11-30T08:00:00Z, 2026-11-30 08:00:00 or 2026-11-30")

// parseTime reads a time and writes it as RFC 3339 UTC. The platform keeps
// microseconds, so a finer time cannot be represented.
func parseTime(text string) (string, error) {
	t, err := time.Parse(time.RFC3339, text)
	for i := 0; err != nil && i < len(timeForms); i++ {
		t, err = time.Parse(timeForms[i], text)
	}
	if err != nil {
		return "", errTime
	}
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return "", errTime
	}
	if t.Nanosecond()%1000 != 0 {
		return "", errors.New("is finer than a microsecond")
	}
	return t.Format(time.RFC3339Nano), nil
}

// digest is a short name for an object's content.
type digest [16]byte

// digest covers the values that this file's rows may set, and what an invoice
// always has. A status that is not given is the draft that the server makes of it.
func (l *layout) digest(o *object) digest {
	h := sha256.New()
	for i, v := range l.kind.sent {
		text := o.values[i]
		if !l.compares(i) {
			continue
		}
		if v.name == "status" && text == "" {
			text = "draft"
		}
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return digest(h.Sum(nil)[:len(digest{})])
}

// compares reports whether a value takes part in the comparison of a row with
// the object that is there. What no column is mapped to, the file says nothing about.
func (l *layout) compares(at int) bool {
	return l.given[at] || l.kind.name == "invoices" && at == atCurrency
}

// differences names what differs between a row and the object that is there.
func (l *layout) differences(want, have *object) []string {
	var all []string
	for i, v := range l.kind.sent {
		w, h := want.values[i], have.values[i]
		if w == h || !l.compares(i) || v.assigned && w == "" {
			continue
		}
		all = append(all, fmt.Sprintf("%s is %s there and %s in the file", v.name, shown(h), shown(w)))
	}
	return all
}

func shown(s string) string {
	if s == "" {
		return "not set"
	}
	return quote(s)
}
