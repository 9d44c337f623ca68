package importer

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bojanz/currency"
)

// outcome is what became of a row.
type outcome int

const (
	created outcome = iota
	alreadyThere
	failed
	unfinished // the import ended before the row's answer was known
	outcomes
)

// sums adds up amounts by currency.
type sums map[string]*big.Int

// counts is the account of one file.
type counts struct {
	rows   [outcomes]int64
	sums   [outcomes]sums // of invoices whose amount could be read
	noRef  int64
	loaded bool // a file of this kind was given
}

// tally counts rows and writes down why they failed. Safe for concurrent use.
type tally struct {
	reached atomic.Bool // the gateway has answered

	mu        sync.Mutex
	files     map[string]*counts // by kind
	retries   int64
	report    *csv.Writer // nil: errors go to the console
	reportErr error
}

func newTally(report io.Writer, kinds ...*kind) (*tally, error) {
	t := &tally{files: map[string]*counts{}}
	for _, k := range kinds {
		c := &counts{}
		for i := range c.sums {
			c.sums[i] = sums{}
		}
		t.files[k.name] = c
	}
	if report == nil {
		return t, nil
	}
	t.report = csv.NewWriter(report)
	if err := t.report.Write([]string{"file", "line", "kind", "reference", "code", "message"}); err != nil {
		return nil, err
	}
	t.report.Flush()
	return t, t.report.Error()
}

// count adds a row to its file's account.
func (t *tally) count(r *row, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.files[r.kind.name]
	c.rows[o]++
	if len(r.values) == 0 {
		return
	}
	if r.reference() == "" && (o == created || o == alreadyThere) {
		c.noRef++
	}
	if r.kind.name != "invoices" || r.values[atMinor] == "" {
		return
	}
	code := r.values[atCurrency]
	sum := c.sums[o][code]
	if sum == nil {
		sum = new(big.Int)
		c.sums[o][code] = sum
	}
	minor, _ := new(big.Int).SetString(r.values[atMinor], 10) // we formatted it
	sum.Add(sum, minor)
}

// fail counts a row as failed and writes its error.
func (t *tally) fail(con *console, file string, r *row, err *rowError) {
	t.count(r, failed)
	if t.report == nil {
		who := ""
		if err.reference != "" {
			who = "reference " + quote(err.reference) + ": "
		}
		con.line("%s:%d: %s%s [%s]", file, err.line, who, err.message, err.code)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := []string{escapeText(file), strconv.Itoa(err.line), r.kind.name, escapeText(err.reference), escapeText(err.code), escapeText(err.message)}
	writeErr := t.report.Write(line)
	t.report.Flush() // so that a killed run leaves its errors
	if writeErr == nil {
		writeErr = t.report.Error()
	}
	if writeErr != nil && t.reportErr == nil {
		t.reportErr = writeErr
	}
}

// retried counts a retry, and tells of the first one of a run.
func (t *tally) retried(con *console, err error) {
	t.mu.Lock()
	t.retries++
	first := t.retries == 1
	t.mu.Unlock()
	if first {
		con.line("the gateway cannot take a request now, trying again: %v", err)
	}
}

func (t *tally) failures() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var n int64
	for _, c := range t.files {
		n += c.rows[failed]
	}
	return n
}

// line is one file's counts, for the progress line.
func (t *tally) line(k *kind) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.files[k.name].line(k)
}

func (c *counts) line(k *kind) string {
	var total int64
	for _, n := range c.rows {
		total += n
	}
	text := fmt.Sprintf("%s: %d rows: %d created, %d already there, %d failed",
		k.name, total, c.rows[created], c.rows[alreadyThere], c.rows[failed])
	if n := c.rows[unfinished]; n > 0 {
		text += fmt.Sprintf(", %d unfinished", n)
	}
	return text
}

// Summary is what --json prints.
type Summary struct {
	TenantID  string       `json:"tenantId"`
	Customers *FileSummary `json:"customers,omitempty"`
	Invoices  *FileSummary `json:"invoices,omitempty"`
	Retries   int64        `json:"retries"`
	Changed   bool         `json:"changed"`  // something was created
	Complete  bool         `json:"complete"` // every row is loaded or was there
	Stopped   string       `json:"stopped,omitempty"`
}

// FileSummary counts one file's rows. Sums cover the invoices whose amount could
// be read, by outcome.
type FileSummary struct {
	Rows         int64         `json:"rows"`
	Created      int64         `json:"created"`
	AlreadyThere int64         `json:"alreadyThere"`
	Failed       int64         `json:"failed"`
	Unfinished   int64         `json:"unfinished"`
	NoReference  int64         `json:"withoutReference"`
	Sums         []CurrencySum `json:"sums,omitempty"`
}

// CurrencySum is one currency's amounts by outcome. Loaded is created and already
// there together: what the tenant has of this file.
type CurrencySum struct {
	Currency     string `json:"currency"`
	Loaded       Sum    `json:"loaded"`
	Created      Sum    `json:"created"`
	AlreadyThere Sum    `json:"alreadyThere"`
	Failed       Sum    `json:"failed"`
	Unfinished   Sum    `json:"unfinished"`
}

// Sum is an amount in minor units, exact at any size, and as a decimal.
type Sum struct {
	Minor  json.Number `json:"minor"`
	Amount string      `json:"amount"`
}

// summary is the account so far.
func (t *tally) summary(tenant, stopped string) Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Summary{TenantID: tenant, Retries: t.retries, Stopped: stopped, Complete: stopped == ""}
	for name, into := range map[string]**FileSummary{"customers": &s.Customers, "invoices": &s.Invoices} {
		c := t.files[name]
		if c == nil || !c.loaded {
			continue
		}
		f := c.summary()
		*into = f
		s.Changed = s.Changed || f.Created > 0
		s.Complete = s.Complete && f.Failed == 0 && f.Unfinished == 0
	}
	return s
}

func (c *counts) summary() *FileSummary {
	f := &FileSummary{
		Created: c.rows[created], AlreadyThere: c.rows[alreadyThere],
		Failed: c.rows[failed], Unfinished: c.rows[unfinished], NoReference: c.noRef,
	}
	f.Rows = f.Created + f.AlreadyThere + f.Failed + f.Unfinished
	seen := map[string]bool{}
	var codes []string
	for _, byCode := range c.sums {
		for code := range byCode {
			if !seen[code] {
				seen[code] = true
				codes = append(codes, code)
			}
		}
	}
	slices.Sort(codes)
	for _, code := range codes {
		of := func(which ...outcome) Sum {
			total := new(big.Int)
			for _, o := range which {
				if sum := c.sums[o][code]; sum != nil {
					total.Add(total, sum)
				}
			}
			digits, _ := currency.GetDigits(code) // only known ones have a sum
			return Sum{Minor: json.Number(total.String()), Amount: formatBig(total, digits)}
		}
		f.Sums = append(f.Sums, CurrencySum{
			Currency: code, Loaded: of(created, alreadyThere), Created: of(created),
			AlreadyThere: of(alreadyThere), Failed: of(failed), Unfinished: of(unfinished),
		})
	}
	return f
}

// text is the summary for people.
func (s Summary) text() string {
	var b strings.Builder
	file := func(name string, f *FileSummary) {
		if f == nil {
			return
		}
		fmt.Fprintf(&b, "%-9s  %d rows: %d created, %d already there, %d failed", name, f.Rows, f.Created, f.AlreadyThere, f.Failed)
		if f.Unfinished > 0 {
			fmt.Fprintf(&b, ", %d unfinished", f.Unfinished)
		}
		b.WriteByte('\n')
		for _, sum := range f.Sums {
			fmt.Fprintf(&b, "  %s  ", sum.Currency)
			for i, part := range []struct {
				name string
				sum  Sum
			}{{"created", sum.Created}, {"already there", sum.AlreadyThere}, {"failed", sum.Failed}, {"unfinished", sum.Unfinished}} {
				if part.name == "unfinished" && f.Unfinished == 0 {
					continue
				}
				if i > 0 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%s %s (%s minor units)", part.sum.Amount, part.name, part.sum.Minor)
			}
			b.WriteByte('\n')
		}
		if f.NoReference > 0 {
			fmt.Fprintf(&b, "  %d rows have no reference; they are recognised by their content only\n", f.NoReference)
		}
	}
	file("customers", s.Customers)
	file("invoices", s.Invoices)
	switch {
	case s.Stopped != "":
		fmt.Fprintf(&b, "Stopped: %s. Running the same command again goes on where it stopped.\n", s.Stopped)
	case !s.Complete:
		b.WriteString("Rows that failed were not loaded; correct them and run the same command again.\n")
	case !s.Changed:
		b.WriteString("Nothing changed: everything was there already.\n")
	default:
		b.WriteString("Everything is loaded.\n")
	}
	return b.String()
}
