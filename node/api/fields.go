package api

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"celld/gateway/body"
	"celld/store/fault"
)

// fields checks the values of a decoded body, field by field, and keeps the
// first of each sort of fault: what is malformed (400) is reported before what
// is impossible (422).
type fields struct {
	malformed  error
	impossible error
}

func (f *fields) fail(err *fault.Error) {
	switch {
	case err.Kind == fault.Impossible && f.impossible == nil:
		f.impossible = err
	case err.Kind != fault.Impossible && f.malformed == nil:
		f.malformed = err
	}
}

func (f *fields) done() error {
	if f.malformed != nil {
		return f.malformed
	}
	return f.impossible
}

func invalidField(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "invalid-field", name+" "+format, args...).With("field", name)
}

// need says whether a required field is there.
func (f *fields) need(name string, given bool) bool {
	if !given {
		f.fail(invalidField(name, "is required"))
	}
	return given
}

// text checks an optional text of least..most characters and returns it.
func (f *fields) text(name string, s *string, least, most int) *string {
	if s == nil {
		return nil
	}
	if err := body.Text(name, *s, most*utf8.UTFMax); err != nil {
		f.fail(fault.As(err))
		return nil
	}
	if n := utf8.RuneCountInString(*s); n < least || n > most {
		f.fail(invalidField(name, "must have %d..%d characters", least, most))
		return nil
	}
	return s
}

// integer is a whole number as it was written: whether it fits is for the field
// to say.
type integer struct {
	value int64
	fits  bool
}

// integer checks an optional whole number, written without fraction and
// exponent.
func (f *fields) integer(name string, raw json.RawMessage) *integer {
	if raw == nil {
		return nil
	}
	digits := strings.TrimPrefix(string(raw), "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		f.fail(invalidField(name, "must be an integer, written without fraction and exponent"))
		return nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return &integer{n, err == nil}
}

// amount checks an optional amount in minor units: 0 to the largest int64.
func (f *fields) amount(name string, raw json.RawMessage) *int64 {
	n := f.integer(name, raw)
	if n == nil {
		return nil
	}
	if !n.fits || n.value < 0 {
		f.fail(fault.New(fault.Impossible, "invalid-amount", "%s must be 0..%d minor units", name, int64(math.MaxInt64)).With("field", name))
		return nil
	}
	return &n.value
}

const wantedTime = "must be a time like 2026-01-31T09:30:00Z, in UTC, with microseconds at most"

// time checks an optional time and returns it as unix microseconds.
func (f *fields) time(name string, s *string) *int64 {
	if s == nil {
		return nil
	}
	micros, ok := parseTime(*s)
	if !ok {
		f.fail(invalidField(name, wantedTime))
		return nil
	}
	return &micros
}

// parseTime reads an RFC 3339 time in UTC as unix microseconds. Parts of a
// microsecond are refused: they could not be given back.
func parseTime(s string) (int64, bool) {
	if !strings.HasSuffix(s, "Z") {
		return 0, false
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil || t.Nanosecond()%1000 != 0 {
		return 0, false
	}
	return t.UnixMicro(), true
}

// parsePositive reads a number as it is written in paths and headers: digits
// alone, so that each number has one form.
func parsePositive(s string) (int64, bool) {
	if s == "" || s[0] < '1' || s[0] > '9' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
