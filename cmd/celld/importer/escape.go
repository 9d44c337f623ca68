package importer

import "strings"

// formulaStarts are the first characters by which a spreadsheet takes a cell for
// something other than text.
const formulaStarts = "=+-@\t\r"

// escapeText makes a text cell safe for spreadsheets: if a formula start is its
// first character, or is so after apostrophes, one apostrophe is put before it.
// Counting the apostrophes in makes it reversible for every text.
func escapeText(s string) string {
	if risky(strings.TrimLeft(s, "'")) {
		return "'" + s
	}
	return s
}

// unescapeText is the inverse of escapeText, and leaves every other text alone:
// 'tis stays, '=1+1 becomes =1+1.
func unescapeText(s string) string {
	if rest, quoted := strings.CutPrefix(s, "'"); quoted && risky(strings.TrimLeft(rest, "'")) {
		return rest
	}
	return s
}

func risky(s string) bool {
	return s != "" && strings.IndexByte(formulaStarts, s[0]) >= 0
}
