package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// assignments are the --map flags of one kind: field name to the header, or to
// several joined by "+", or to "" for a field that is not to be loaded.
type assignments map[string]string

// parseMaps reads --map flags of the form kind.field=Header[+Header...].
func parseMaps(flags []string, kinds ...*kind) (map[string]assignments, error) {
	maps := map[string]assignments{}
	for _, k := range kinds {
		maps[k.name] = assignments{}
	}
	for _, flag := range flags {
		if err := parseMap(flag, maps, kinds); err != nil {
			return nil, fmt.Errorf("--map %s: %w", quote(flag), err)
		}
	}
	return maps, nil
}

func parseMap(flag string, maps map[string]assignments, kinds []*kind) error {
	target, header, ok := strings.Cut(flag, "=")
	kindName, fieldName, dotted := strings.Cut(target, ".")
	if !ok || !dotted {
		return errors.New("want kind.field=Header or kind.field=Header+Header")
	}
	at := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == kindName })
	if at < 0 {
		return errors.New("the kind is customers or invoices")
	}
	f, ok := kinds[at].field(fieldName)
	if !ok {
		return fmt.Errorf("%s have the fields %s", kindName, kinds[at].fieldNames())
	}
	if !utf8.ValidString(header) {
		return errors.New("the header is not valid UTF-8")
	}
	if _, twice := maps[kindName][f.name]; twice {
		return fmt.Errorf("%s is mapped twice", target)
	}
	maps[kindName][f.name] = header
	return nil
}

// binding is a field with the columns that it is made of.
type binding struct {
	field
	columns []int
}

// layout says how the rows of one file become objects.
type layout struct {
	kind     *kind
	width    int // number of columns
	bindings []binding
	given    []bool // by index in kind.sent: rows of this file may set it
	ignored  []string
}

// bind finds each field's columns in the header. A field without a flag takes the
// column of its own name if there is one.
func bind(k *kind, header []string, flags assignments) (*layout, error) {
	columns, err := columnsOf(header)
	if err != nil {
		return nil, err
	}
	l := &layout{kind: k, width: len(header), given: make([]bool, len(k.sent))}
	used := make([]bool, len(header))
	for _, f := range k.fields {
		name, flagged := flags[f.name]
		if !flagged {
			name = f.header
			if _, there := columns[name]; !there {
				continue
			}
		}
		if name == "" {
			continue
		}
		at, err := find(columns, header, f, name)
		if err != nil {
			return nil, err
		}
		l.bindings = append(l.bindings, binding{field: f, columns: at})
		l.given[f.sent] = true
		for _, column := range at {
			used[column] = true
		}
	}
	for _, group := range k.required {
		if !slices.ContainsFunc(group, l.binds) {
			return nil, fmt.Errorf("no column is mapped to %s.%s; the file has the columns %s; say which with --map %s.%s=COLUMN%s",
				k.name, strings.Join(group, " or "), quoteAll(header), k.name, group[0], notCommas(header))
		}
	}
	for i, name := range header {
		if !used[i] {
			l.ignored = append(l.ignored, name)
		}
	}
	return l, nil
}

// notCommas is a hint for a file whose columns are separated by something else.
func notCommas(header []string) string {
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t|") {
		return " (one column only: a file's columns are separated by commas)"
	}
	return ""
}

func columnsOf(header []string) (map[string]int, error) {
	columns := make(map[string]int, len(header))
	for i, name := range header {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of column %d is not valid UTF-8", i+1)
		}
		if before, twice := columns[name]; twice {
			return nil, fmt.Errorf("columns %d and %d are both named %s", before+1, i+1, quote(name))
		}
		columns[name] = i
	}
	return columns, nil
}

// find resolves a header name, or several joined by "+". A header that has a "+"
// of its own wins over a join.
func find(columns map[string]int, header []string, f field, name string) ([]int, error) {
	if at, ok := columns[name]; ok {
		return []int{at}, nil
	}
	parts := strings.Split(name, "+")
	if len(parts) > 1 && !f.joins {
		return nil, fmt.Errorf("%s is one column and cannot be joined of %s", f.name, quote(name))
	}
	at := make([]int, len(parts))
	for i, part := range parts {
		column, ok := columns[part]
		if !ok {
			return nil, fmt.Errorf("there is no column %s for %s; the file has the columns %s",
				quote(part), f.name, quoteAll(header))
		}
		at[i] = column
	}
	return at, nil
}

func (l *layout) binds(name string) bool {
	return slices.ContainsFunc(l.bindings, func(b binding) bool { return b.name == name })
}

// cell is the field's text in a record: its columns' texts, joined with a space,
// empty ones left out.
func (b binding) cell(record []string) string {
	if len(b.columns) == 1 {
		return b.clean(record[b.columns[0]])
	}
	parts := make([]string, 0, len(b.columns))
	for _, column := range b.columns {
		if part := b.clean(record[column]); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

func (b binding) clean(text string) string {
	if b.text {
		return unescapeText(text)
	}
	return text
}

// quote shows a text from outside in one line of bounded length.
func quote(s string) string {
	const most = 60
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q...", s[:cut])
}

func quoteAll(names []string) string {
	const most = 40
	var quoted []string
	for i, name := range names {
		if i == most {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		quoted = append(quoted, quote(name))
	}
	return strings.Join(quoted, ", ")
}
