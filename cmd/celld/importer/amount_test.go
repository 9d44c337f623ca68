package importer

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/bojanz/currency"
	"pgregory.net/rapid"
)

func TestParseAmount(t *testing.T) {
	for _, test := range []struct {
		text, currency string
		want           int64
		fault          string
	}{
		{"1.98", "USD", 198, ""},
		{"1.980", "USD", 198, ""},
		{"1.9800000000000000000000000000000", "USD", 198, ""},
		{"1.9", "USD", 190, ""},
		{"2", "USD", 200, ""},
		{"0", "USD", 0, ""},
		{"-0.00", "USD", 0, ""},
		{"-0.01", "USD", -1, ""},
		{"-12.34", "USD", -1234, ""},
		{"007.50", "USD", 750, ""},
		{"1.985", "USD", 0, "more decimal digits than the currency's 2"},
		{"0.001", "USD", 0, "more decimal digits"},
		{"1500", "JPY", 1500, ""},
		{"1500.0", "JPY", 1500, ""},
		{"1500.5", "JPY", 0, "the currency's 0"},
		{"1.234", "KWD", 1234, ""},
		{"1.2", "KWD", 1200, ""},
		{"1.2345", "KWD", 0, "the currency's 3"},
		{"92233720368547758.07", "USD", math.MaxInt64, ""},
		{"92233720368547758.08", "USD", 0, "too large"},
		{"-92233720368547758.08", "USD", math.MinInt64, ""},
		{"-92233720368547758.09", "USD", 0, "too large"},
		{"9223372036854775807", "JPY", math.MaxInt64, ""},
		{"9223372036854775808", "JPY", 0, "too large"},
		{"-9223372036854775808", "JPY", math.MinInt64, ""},
		{"9223372036854775807", "USD", 0, "too large"},
		{"99999999999999999999999999", "JPY", 0, "too large"},
		{strings.Repeat("0", 65), "USD", 0, "not a decimal"},
		{"", "USD", 0, "not a decimal"},
		{"-", "USD", 0, "not a decimal"},
		{".", "USD", 0, "not a decimal"},
		{".5", "USD", 0, "not a decimal"},
		{"5.", "USD", 0, "not a decimal"},
		{"--5", "USD", 0, "not a decimal"},
		{"+5", "USD", 0, "not a decimal"},
		{"1,000.00", "USD", 0, "not a decimal"},
		{"1 000", "USD", 0, "not a decimal"},
		{"1'000", "USD", 0, "not a decimal"},
		{"1,5", "USD", 0, "not a decimal"},
		{"1e3", "USD", 0, "not a decimal"},
		{"0x10", "USD", 0, "not a decimal"},
		{" 1", "USD", 0, "not a decimal"},
		{"$1", "USD", 0, "not a decimal"},
		{"1.0.0", "USD", 0, "not a decimal"},
		{"١", "USD", 0, "not a decimal"},
		{"NaN", "USD", 0, "not a decimal"},
	} {
		digits, ok := currency.GetDigits(test.currency)
		if !ok {
			t.Fatal(test.currency)
		}
		got, err := ParseAmount(test.text, digits)
		if test.fault == "" && (err != nil || got != test.want) {
			t.Errorf("%s %s: %d, %v, want %d", test.text, test.currency, got, err, test.want)
		}
		if test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)) {
			t.Errorf("%s %s: %d, %v, want an error with %q", test.text, test.currency, got, err, test.fault)
		}
	}
}

func TestParseMinor(t *testing.T) {
	for _, text := range []string{"", "1.0", "1.5", "x", "1,0", "9223372036854775808"} {
		if n, err := parseMinor(text); err == nil {
			t.Errorf("%q gives %d", text, n)
		}
	}
	if n, err := parseMinor("-17"); n != -17 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// Formatting and parsing are each other's inverse, for minor units and for texts
// in canonical form.
func TestAmountRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.Uint8Range(0, 4).Draw(t, "digits")
		minor := rapid.Int64().Draw(t, "minor")
		text := FormatAmount(minor, digits)
		back, err := ParseAmount(text, digits)
		if err != nil || back != minor {
			t.Fatalf("%d is %s is %d, %v", minor, text, back, err)
		}
		if again := FormatAmount(back, digits); again != text {
			t.Fatalf("%s comes back as %s", text, again)
		}
	})
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"1.98", "-0.01", "1.985", "92233720368547758.08", "1,000", "1e5", "", "000", "1.000000"} {
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, digits uint8) {
		digits %= 5
		minor, err := ParseAmount(text, digits)
		// The naive twin: a rational number times a power of ten.
		exact, ok := new(big.Rat).SetString(text)
		if err == nil {
			if !ok {
				t.Fatalf("%q gives %d and is no number", text, minor)
			}
			scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
			if exact.Mul(exact, new(big.Rat).SetInt(scale)).Cmp(new(big.Rat).SetInt64(minor)) != 0 {
				t.Fatalf("%q with %d digits gives %d", text, digits, minor)
			}
			if back, err := ParseAmount(FormatAmount(minor, digits), digits); err != nil || back != minor {
				t.Fatalf("%d comes back as %d, %v", minor, back, err)
			}
		}
	})
}
