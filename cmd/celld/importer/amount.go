package importer

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// maxAmountText bounds an amount's text: 19 digits of an int64, a sign, a point,
// and room for zeros that change nothing.
const maxAmountText = 64

var (
	errAmountSyntax   = errors.New("is not a decimal number like 1234.50 (digits, a point, no thousands separators, no exponent)")
	errAmountOverflow = errors.New("is too large for 64 bits of minor units")
)

// ParseAmount reads a decimal amount as minor units of a currency with the given
// number of decimal digits. It never rounds: digits beyond those must be zeros.
// The grammar is -?[0-9]+(\.[0-9]+)? and no more than maxAmountText bytes.
func ParseAmount(text string, digits uint8) (int64, error) {
	if len(text) > maxAmountText {
		return 0, errAmountSyntax
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(unsigned, ".")
	if !allDigits(whole) || point && !allDigits(fraction) {
		return 0, errAmountSyntax
	}
	for uint(len(fraction)) < uint(digits) {
		fraction += "0"
	}
	if strings.Trim(fraction[digits:], "0") != "" {
		return 0, fmt.Errorf("has more decimal digits than the currency's %d", digits)
	}
	minor, err := addDigits(0, whole, negative)
	if err != nil {
		return 0, err
	}
	return addDigits(minor, fraction[:digits], negative)
}

// addDigits appends decimal digits to n, counting away from zero. It works on the
// negative side, where an int64 has one value more.
func addDigits(n int64, digits string, negative bool) (int64, error) {
	if n > 0 {
		n = -n
	}
	for _, c := range []byte(digits) {
		d := int64(c - '0')
		if n < (math.MinInt64+d)/10 {
			return 0, errAmountOverflow
		}
		n = n*10 - d
	}
	if negative {
		return n, nil
	}
	if n == math.MinInt64 {
		return 0, errAmountOverflow
	}
	return -n, nil
}

// parseMinor reads an integer of minor units: -?[0-9]+.
func parseMinor(text string) (int64, error) {
	minor, err := ParseAmount(text, 0)
	if errors.Is(err, errAmountSyntax) || strings.Contains(text, ".") {
		return 0, errors.New("is not a whole number of minor units")
	}
	return minor, err
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// FormatAmount writes minor units as a decimal with exactly the given number of
// decimal digits. ParseAmount is its inverse.
func FormatAmount(minor int64, digits uint8) string {
	return formatBig(big.NewInt(minor), digits)
}

// formatBig is FormatAmount for sums, which may pass 64 bits.
func formatBig(minor *big.Int, digits uint8) string {
	text := new(big.Int).Abs(minor).String()
	for len(text) <= int(digits) {
		text = "0" + text
	}
	if digits > 0 {
		at := len(text) - int(digits)
		text = text[:at] + "." + text[at:]
	}
	if minor.Sign() < 0 {
		return "-" + text
	}
	return text
}
