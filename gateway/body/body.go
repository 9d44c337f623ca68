package body

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"celld/store/fault"
)

// Limit is the most that a request's body may have, in bytes (design section 7).
const Limit = 256 << 10

// Read returns r's whole body, at most limit bytes of application/json. No body
// at all is no bytes and no error, whatever the content type: Decode refuses it
// where one is needed.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		// The rest is never read, so the connection can't be used again.
		w.Header().Set("Connection", "close")
		return nil, tooLarge(limit)
	}
	if !isJSON(r.Header) {
		return nil, fault.New(fault.MediaType, "unsupported-media-type", "the body must be application/json in UTF-8, not compressed")
	}
	if r.ContentLength > 0 {
		raw := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, raw); err != nil {
			return nil, broken(err)
		}
		return raw, nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, broken(err)
	}
	return raw, nil
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "body-too-large", "the body may have %d bytes", limit).With("limit", limit)
}

func broken(err error) error {
	return fault.New(fault.Invalid, "unreadable-body", "the body could not be read to its end").Because(err)
}

// isJSON accepts application/json, alone or with charset=utf-8.
func isJSON(h http.Header) bool {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return false
	}
	types := h["Content-Type"]
	if len(types) != 1 {
		return false
	}
	if types[0] == "application/json" {
		return true
	}
	kind, params, err := mime.ParseMediaType(types[0])
	if err != nil || kind != "application/json" {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// Decode reads raw, which must be exactly one JSON object, into the struct that
// into points to. What it refuses is listed in the package's documentation.
// Members that are left out keep the value they had.
func Decode(raw []byte, into any) error {
	if len(raw) == 0 {
		return fault.New(fault.Invalid, "malformed-json", "the request needs a JSON object as its body")
	}
	t := reflect.TypeOf(into)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return errors.New("body.Decode: want a pointer to a struct")
	}
	s := scanner{raw: raw}
	if err := s.document(t.Elem()); err != nil {
		return err
	}
	err := json.Unmarshal(raw, into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return mistyped(wrong)
	}
	if e := (*fault.Error)(nil); errors.As(err, &e) {
		return e // a type of ours has its own rule
	}
	if err != nil {
		return fault.New(fault.Invalid, "malformed-json", "the body is not valid JSON, or a value has not the form it needs").Because(err)
	}
	return nil
}

// mistyped tells an integer that is out of range from a value of another type.
func mistyped(e *json.UnmarshalTypeError) error {
	literal, isNumber := strings.CutPrefix(e.Value, "number ")
	switch e.Type.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if isNumber && strings.Trim(strings.TrimPrefix(literal, "-"), "0123456789") == "" {
			return fault.New(fault.Impossible, "number-out-of-range", "%s is out of range", e.Field).With("field", e.Field)
		}
		return fault.New(fault.Invalid, "invalid-field", "%s must be an integer, written without fraction and exponent", e.Field).With("field", e.Field)
	}
	want := "a value of another type"
	switch e.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice, reflect.Array:
		want = "an array"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	}
	return fault.New(fault.Invalid, "invalid-field", "%s must be %s", e.Field, want).With("field", e.Field)
}

// Text checks a text from a client: valid UTF-8, at most max bytes of it, no
// control characters except TAB, LF and CR. Nothing is trimmed.
func Text(field, s string, max int) error {
	if len(s) > max {
		return fault.New(fault.Invalid, "invalid-field", "%s may have %d bytes", field, max).With("field", field).With("limit", max)
	}
	ascii := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf {
			ascii = false
		} else if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return control(field)
		}
	}
	if ascii {
		return nil
	}
	if !utf8.ValidString(s) {
		return fault.New(fault.Invalid, "invalid-field", "%s is not valid UTF-8", field).With("field", field)
	}
	for _, r := range s {
		if r >= utf8.RuneSelf && unicode.IsControl(r) {
			return control(field)
		}
	}
	return nil
}

func control(field string) error {
	return fault.New(fault.Invalid, "invalid-field", "%s has a control character; only TAB, LF and CR are taken", field).With("field", field)
}
