package importer

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

type csvLine struct {
	line   int
	fields []string
}

func readAll(t testing.TB, text string) ([]csvLine, error) {
	t.Helper()
	r, err := newCSVReader(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var all []csvLine
	for {
		fields, line, err := r.next()
		if errors.Is(err, io.EOF) {
			if r.offset != int64(len(text)) {
				t.Fatalf("read %d of %d bytes of %q", r.offset, len(text), text)
			}
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, csvLine{line, fields})
	}
}

func TestCSV(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []csvLine
		fault      string
	}{
		{"empty", "", nil, ""},
		{"plain", "a,b\n1,2\n", []csvLine{{1, []string{"a", "b"}}, {2, []string{"1", "2"}}}, ""},
		{"no last newline", "a,b\n1,", []csvLine{{1, []string{"a", "b"}}, {2, []string{"1", ""}}}, ""},
		{"CRLF and BOM", "\xef\xbb\xbfa\r\n1\r\n", []csvLine{{1, []string{"a"}}, {2, []string{"1"}}}, ""},
		{"empty lines", "\n\r\na\n\n\n1\n\n", []csvLine{{3, []string{"a"}}, {6, []string{"1"}}}, ""},
		{"lines inside quotes", "a,b\n\"x\ny\r\nz\",1\n2,3\n", []csvLine{{1, []string{"a", "b"}}, {2, []string{"x\ny\r\nz", "1"}}, {5, []string{"2", "3"}}}, ""},
		{"quotes", `"a ""b""",""` + "\n", []csvLine{{1, []string{`a "b"`, ""}}}, ""},
		{"quoted empty line", "\"\"\n", []csvLine{{1, []string{""}}}, ""},
		{"bare quote", "a\nb\"c\n", []csvLine{{1, []string{"a"}}}, "line 2: a quote stands inside"},
		{"text after quote", "a\n\"b\"c\n", []csvLine{{1, []string{"a"}}}, "line 2: text follows a closing quote"},
		{"unclosed", "a\n1\n\"b\nc\n", []csvLine{{1, []string{"a"}}, {2, []string{"1"}}}, "line 3: a quote is never closed"},
		{"old Mac", "a\rb\r", nil, "line 1: a carriage return outside quotes"},
		{"UTF-16", "\xff\xfea\x00", nil, "is UTF-16"},
		{"large field", "a\n" + strings.Repeat("x", maxField+1), []csvLine{{1, []string{"a"}}}, "line 2: column 1 is larger than"},
		{"large row", "a\n\"" + strings.Repeat("x\n", maxRecord), []csvLine{{1, []string{"a"}}}, "line 2: the row is larger than"},
		{"many columns", strings.Repeat(",", maxColumns), nil, "line 1: more than 1024 columns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readAll(t, test.text)
			same := slices.EqualFunc(got, test.want, func(a, b csvLine) bool { return a.line == b.line && slices.Equal(a.fields, b.fields) })
			if !same {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if test.fault == "" && err != nil || test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)) {
				t.Errorf("error %v, want %q", err, test.fault)
			}
		})
	}
}

// What we read, encoding/csv reads too, up to CR LF inside quotes, which it
// shortens.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"x\ny\",1\r\n", `"a ""b""",` + "\n", "a\"\n", "\"\r\n\",\n", "\n\n,\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasPrefix(text, "\xef\xbb\xbf") {
			return // encoding/csv keeps it
		}
		got, err := readAll(t, text)
		if err != nil {
			return
		}
		twin := csv.NewReader(strings.NewReader(text))
		twin.FieldsPerRecord = -1
		for _, g := range got {
			want, err := twin.Read()
			if err != nil {
				t.Fatalf("%q: %v where we have %q", text, err, g.fields)
			}
			for i := range g.fields {
				g.fields[i] = strings.ReplaceAll(g.fields[i], "\r\n", "\n")
			}
			if line, _ := twin.FieldPos(0); line != g.line || !slices.Equal(g.fields, want) {
				t.Fatalf("%q: line %d %q, want line %d %q", text, g.line, g.fields, line, want)
			}
		}
		if extra, err := twin.Read(); !errors.Is(err, io.EOF) {
			t.Fatalf("%q: we miss %q, %v", text, extra, err)
		}
	})
}

// A writer that quotes gives back every text, CR LF included, and every text
// survives being made safe for spreadsheets.
func TestTextRoundTrip(t *testing.T) {
	alphabet := rapid.SampledFrom([]rune("ab é'\"=+-@\t\r\n,;"))
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringOfN(alphabet, 0, 8, -1), 1, 4).Draw(t, "texts")
		var line strings.Builder
		for i, text := range texts {
			if i > 0 {
				line.WriteByte(',')
			}
			safe := escapeText(text)
			if safe != "" && strings.ContainsRune(formulaStarts, rune(safe[0])) {
				t.Fatalf("%q is not safe", safe)
			}
			line.WriteString(`"` + strings.ReplaceAll(safe, `"`, `""`) + `"`)
		}
		r, err := newCSVReader(strings.NewReader(line.String() + "\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := r.next()
		if err != nil || len(got) != len(texts) {
			t.Fatalf("%q: %q, %v", line.String(), got, err)
		}
		for i := range got {
			if back := unescapeText(got[i]); back != texts[i] {
				t.Fatalf("%q comes back as %q", texts[i], back)
			}
		}
	})
}

func TestEscape(t *testing.T) {
	for _, test := range []struct{ text, safe string }{
		{"", ""}, {"plain", "plain"}, {"'tis", "'tis"}, {"'", "'"}, {"a=b", "a=b"},
		{"=1+1", "'=1+1"}, {"+49 1", "'+49 1"}, {"-", "'-"}, {"@x", "'@x"}, {"\tx", "'\tx"}, {"\rx", "'\rx"},
		{"'=x", "''=x"}, {"''=x", "'''=x"},
	} {
		if got := escapeText(test.text); got != test.safe {
			t.Errorf("%q is escaped as %q, want %q", test.text, got, test.safe)
		}
		if got := unescapeText(test.safe); got != test.text {
			t.Errorf("%q comes back as %q, want %q", test.safe, got, test.text)
		}
	}
}
