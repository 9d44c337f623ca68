package body

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"celld/store/fault"
)

// Query reads a request's query parameters once, into typed values. The first
// thing that is wrong is kept and reported by Done, after every parameter that
// the route knows was asked for; nothing is clamped or trimmed.
type Query struct {
	values url.Values
	known  []string
	err    error
}

// NewQuery parses r's query string.
func NewQuery(r *http.Request) *Query {
	q := &Query{}
	if r.URL.RawQuery == "" {
		return q
	}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	if q.err != nil {
		q.values = nil
		q.err = fault.New(fault.Invalid, "invalid-query", "the query string is not well formed").Because(q.err)
	}
	return q
}

// fail keeps the first fault.
func (q *Query) fail(name, format string, args ...any) {
	if q.err == nil {
		q.err = fault.New(fault.Invalid, "invalid-query", format, args...).With("parameter", name)
	}
}

// one returns the parameter's only value and whether it is there.
func (q *Query) one(name string) (string, bool) {
	if q.values == nil {
		return "", false
	}
	q.known = append(q.known, name)
	switch v := q.values[name]; len(v) {
	case 0:
		return "", false
	case 1:
		return v[0], true
	default:
		q.fail(name, "the parameter %s is given %d times", name, len(v))
		return "", false
	}
}

// Text returns a text of 1..max bytes, "" when the parameter is absent.
func (q *Query) Text(name string, max int) string {
	s, ok := q.one(name)
	if !ok {
		return ""
	}
	if s == "" {
		q.fail(name, "the parameter %s is empty", name)
	} else if err := Text(name, s, max); err != nil {
		q.fail(name, "the parameter %s", fault.As(err).Detail)
	}
	return s
}

// Uint returns an integer within low..high, otherwise when the parameter is
// absent. It is written in decimal without sign and leading zeros.
func (q *Query) Uint(name string, low, high, otherwise uint64) uint64 {
	s, ok := q.one(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s || n < low || n > high {
		q.fail(name, "the parameter %s must be an integer from %d to %d", name, low, high)
		return otherwise
	}
	return n
}

// OneOf returns one of the options, matched exactly, otherwise when the
// parameter is absent.
func (q *Query) OneOf(name, otherwise string, options ...string) string {
	s, ok := q.one(name)
	if !ok {
		return otherwise
	}
	if !slices.Contains(options, s) {
		q.fail(name, "the parameter %s must be one of %s", name, strings.Join(options, ", "))
		return otherwise
	}
	return s
}

// Time returns an RFC 3339 time, and whether the parameter is there.
func (q *Query) Time(name string) (time.Time, bool) {
	s, ok := q.one(name)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		q.fail(name, "the parameter %s must be a time like 2026-01-31T12:00:00Z", name)
		return time.Time{}, false
	}
	return t.UTC(), true
}

// Fail reports a parameter that is wrong by a rule of the route's own.
func (q *Query) Fail(name, format string, args ...any) {
	q.fail(name, format, args...)
}

// Done returns the first fault, which may be a parameter that nobody asked for.
func (q *Query) Done() error {
	if q.err != nil || len(q.values) == 0 {
		return q.err
	}
	unknown := ""
	for name := range q.values {
		if !slices.Contains(q.known, name) && (unknown == "" || name < unknown) {
			unknown = name
		}
		if name == "" && !slices.Contains(q.known, "") {
			return fault.New(fault.Invalid, "invalid-query", "a parameter has no name")
		}
	}
	if unknown != "" {
		return fault.New(fault.Invalid, "invalid-query", "the parameter %s is not known here", quote(unknown)).With("parameter", short(strings.ToValidUTF8(unknown, "?")))
	}
	return nil
}
