package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is one field of an object and its heading.
type column struct{ title, field string }

func decodeObject(b []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	m := map[string]any{}
	err := d.Decode(&m)
	return m, err
}

// text is a value as a table shows it: one line, "-" for nothing.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return clean(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = text(v[i])
		}
		return strings.Join(parts, ",")
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+"="+text(v[k]))
		}
		return strings.Join(parts, " ")
	}
	return clean(fmt.Sprint(v))
}

// clean keeps what a tenant wrote from speaking to the operator's terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

func printTable(out io.Writer, items []any, columns []column) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, c.title)
	}
	fmt.Fprintln(w)
	for _, item := range items {
		fields, _ := item.(map[string]any)
		for i, c := range columns {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, text(fields[c.field]))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func printFields(out io.Writer, doc map[string]any, columns []column) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t%s\n", c.title, text(doc[c.field]))
	}
	return w.Flush()
}
