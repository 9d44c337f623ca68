package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Style is how tables are written.
type Style int

// Styles of tables.
const (
	Text Style = iota
	Markdown
)

// Write writes the report for people.
func (r *Report) Write(w io.Writer, style Style) error {
	p := &printer{w: w, style: style}
	for _, n := range r.Notes {
		p.line("%s", n)
	}
	p.table(lineTable(r.Lines))
	p.table(ratioTable(r.Ratios))
	p.table(factTable(r.Facts))
	p.line("")
	for _, l := range r.Lines {
		if l.FirstError != "" {
			p.line("first error of %s: %s", strings.TrimSpace(l.Part+" "+l.What), l.FirstError)
		}
	}
	if r.Kept > 0 {
		p.line("all %d acknowledged writes were found again", r.Kept)
	}
	p.line("%s", r.Machine)
	return p.err
}

// printer remembers the first error. In Markdown each line is a paragraph.
type printer struct {
	w     io.Writer
	style Style
	err   error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
	if p.err == nil && p.style == Markdown && format != "" {
		_, p.err = fmt.Fprintln(p.w)
	}
}

// table is rows of cells; the columns that hold nothing but blanks are left out.
type table struct {
	header []string
	left   int // how many columns are text
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (p *printer) table(t table) {
	t.prune()
	if len(t.rows) == 0 || p.err != nil {
		return
	}
	if p.style == Markdown {
		p.markdown(t)
		return
	}
	if _, p.err = fmt.Fprintln(p.w); p.err != nil {
		return
	}
	w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range slices.Insert(t.rows, 0, t.header) {
		t.pad(row)
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t") // Flush tells
	}
	p.err = w.Flush()
}

// pad makes text stand on the left, in a table that aligns to the right.
func (t *table) pad(row []string) {
	for i := range t.left {
		widest := len(t.header[i])
		for _, r := range t.rows {
			widest = max(widest, len(r[i]))
		}
		row[i] += strings.Repeat(" ", widest-len(row[i]))
	}
}

func (p *printer) markdown(t table) {
	var b strings.Builder
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "---:"
		if i < t.left {
			rule[i] = "---"
		}
	}
	for _, row := range slices.Insert(t.rows, 0, t.header, rule) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	_, p.err = fmt.Fprintln(p.w, b.String())
}

// prune takes empty columns out.
func (t *table) prune() {
	for i := len(t.header) - 1; i >= 0; i-- {
		if slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" }) {
			continue
		}
		t.header = slices.Delete(t.header, i, i+1)
		for j := range t.rows {
			t.rows[j] = slices.Delete(t.rows[j], i, i+1)
		}
		if i < t.left {
			t.left--
		}
	}
}

func lineTable(lines []Line) table {
	t := table{left: 2, header: []string{"", "what", "c", "offered/s", "requests/s", "p50 ms", "p95 ms", "p99 ms", "max ms",
		"CPU us/request", "others %", "late", "not made", "errors", "goal"}}
	open := slices.ContainsFunc(lines, func(l Line) bool { return l.Offered > 0 })
	for _, l := range lines {
		late, unmade := "", ""
		if open {
			late, unmade = fmt.Sprint(l.Late), fmt.Sprint(l.Unmade)
		}
		t.add(l.Part, l.What, whole(float64(l.Connections)), whole(l.Offered), fmt.Sprintf("%.0f", l.PerSecond),
			fmt.Sprintf("%.2f", l.P50), fmt.Sprintf("%.2f", l.P95), fmt.Sprintf("%.2f", l.P99), fmt.Sprintf("%.2f", l.Max),
			whole(l.CPU), fmt.Sprintf("%.0f", 100*l.Others), late, unmade, fmt.Sprint(l.Errors+l.WarmupErrors), l.Goal.String())
	}
	return t
}

// whole is v without a fraction, nothing for zero.
func whole(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", v)
}

// String says what the goal was and whether it was met.
func (g *Goal) String() string {
	switch {
	case g == nil:
		return ""
	case g.Met:
		return fmt.Sprintf("p95 < %.0f: met", g.P95)
	}
	return fmt.Sprintf("p95 < %.0f: MISSED", g.P95)
}

func ratioTable(ratios []Ratio) table {
	t := table{left: 1, header: []string{"ratio", "c", "all", "worst round", "best round", "goal", "goal behind it"}}
	for _, q := range ratios {
		goal, beyond := "", ""
		if q.Goal > 0 {
			goal, beyond = fmt.Sprintf("%.2f: met", q.Goal), fmt.Sprintf("%.2f", q.Beyond)
			if q.Ratio < q.Goal {
				goal = fmt.Sprintf("%.2f: MISSED", q.Goal)
			}
		}
		t.add(q.What, fmt.Sprint(q.Connections), fmt.Sprintf("%.2f", q.Ratio), fmt.Sprintf("%.2f", q.Least), fmt.Sprintf("%.2f", q.Most), goal, beyond)
	}
	return t
}

func factTable(facts []Fact) table {
	t := table{left: 1, header: []string{"figure", "value"}}
	for _, f := range facts {
		digits := 0
		if f.Value < 100 && f.Value != float64(int64(f.Value)) {
			digits = 2
		}
		t.add(f.What, fmt.Sprintf("%.*f %s", digits, f.Value, f.Unit))
	}
	return t
}
