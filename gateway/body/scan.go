package body

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"celld/store/fault"
)

// maxDepth bounds nesting, maxMembers the members of one object.
const (
	maxDepth   = 16
	maxMembers = 1024
)

// scanner walks a document beside the type that it is meant for and refuses what
// encoding/json lets pass: duplicate members, members in another case, null,
// invalid UTF-8, lone surrogates. The grammar of numbers and literals is left to
// encoding/json, which reads the document afterwards.
type scanner struct {
	raw []byte
	at  int
}

func malformed(at int) error {
	return fault.New(fault.Invalid, "malformed-json", "the body is not valid JSON near byte %d", at)
}

func (s *scanner) document(t reflect.Type) error {
	s.space()
	if s.peek() != '{' {
		return fault.New(fault.Invalid, "malformed-json", "the body must be one JSON object")
	}
	if err := s.object(t, 1); err != nil {
		return err
	}
	s.space()
	if s.at != len(s.raw) {
		return fault.New(fault.Invalid, "malformed-json", "the body has data after its JSON object")
	}
	return nil
}

func (s *scanner) peek() byte {
	if s.at < len(s.raw) {
		return s.raw[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.raw) {
		switch s.raw[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// value walks one value. t is nil where the type says nothing about members.
func (s *scanner) value(t reflect.Type, depth int) error {
	s.space()
	switch c := s.peek(); c {
	case '{':
		return s.object(t, depth+1)
	case '[':
		return s.array(t, depth+1)
	case '"':
		_, err := s.text()
		return err
	case 0:
		return malformed(s.at)
	default:
		start := s.at
		for s.at < len(s.raw) && !strings.ContainsRune(" \t\r\n,:]}[{\"", rune(s.raw[s.at])) {
			s.at++
		}
		if s.at == start {
			return malformed(s.at)
		}
		if string(s.raw[start:s.at]) == "null" {
			return fault.New(fault.Invalid, "invalid-field", "null is not taken; leave the member out")
		}
		return nil
	}
}

func (s *scanner) array(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.Invalid, "malformed-json", "the body has more than %d levels", maxDepth)
	}
	t = plain(t)
	if t != nil {
		if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
			t = t.Elem()
		} else {
			t = nil
		}
	}
	s.at++
	s.space()
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for {
		if err := s.value(t, depth); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.at++
		case ']':
			s.at++
			return nil
		default:
			return malformed(s.at)
		}
	}
}

func (s *scanner) object(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.Invalid, "malformed-json", "the body has more than %d levels", maxDepth)
	}
	var buffer [16]member
	known := members(buffer[:0], plain(t))
	anyName, elem := known == nil, reflect.Type(nil)
	if p := plain(t); p != nil && p.Kind() == reflect.Map {
		elem = p.Elem()
	}
	var others map[string]bool
	s.at++
	s.space()
	if s.peek() == '}' {
		s.at++
		return nil
	}
	for {
		s.space()
		if s.peek() != '"' {
			return malformed(s.at)
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		of, twice := elem, false
		if anyName {
			if others == nil {
				others = make(map[string]bool)
			}
			twice, others[name] = others[name], true
			if len(others) > maxMembers {
				return fault.New(fault.Invalid, "malformed-json", "an object has more than %d members", maxMembers)
			}
		} else {
			i := find(known, name)
			if i < 0 {
				return fault.New(fault.Invalid, "unknown-field", "the member %s is not known here", quote(name)).With("field", short(name))
			}
			twice, known[i].seen, of = known[i].seen, true, known[i].t
		}
		if twice {
			return fault.New(fault.Invalid, "invalid-field", "the member %s occurs twice", quote(name)).With("field", short(name))
		}
		s.space()
		if s.peek() != ':' {
			return malformed(s.at)
		}
		s.at++
		if err := s.value(of, depth); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.at++
		case '}':
			s.at++
			return nil
		default:
			return malformed(s.at)
		}
	}
}

// text walks a string and returns what it means.
func (s *scanner) text() (string, error) {
	start := s.at
	s.at++
	plain, pair := true, false
	for s.at < len(s.raw) {
		switch c := s.raw[s.at]; {
		case c == '"':
			s.at++
			if pair {
				return "", fault.New(fault.Invalid, "malformed-json", "the body has half a surrogate pair near byte %d", s.at)
			}
			literal := s.raw[start:s.at]
			if plain {
				return string(literal[1 : len(literal)-1]), nil
			}
			if !utf8.Valid(literal) {
				return "", fault.New(fault.Invalid, "malformed-json", "the body is not valid UTF-8 near byte %d", start)
			}
			var out string
			if err := json.Unmarshal(literal, &out); err != nil {
				return "", malformed(start)
			}
			return out, nil
		case c == '\\':
			plain = false
			width, unit := s.escape()
			if width == 0 {
				return "", malformed(s.at)
			}
			low := unit >= 0xdc00 && unit <= 0xdfff
			if pair != low {
				return "", fault.New(fault.Invalid, "malformed-json", "the body has half a surrogate pair near byte %d", s.at)
			}
			pair = unit >= 0xd800 && unit <= 0xdbff
			s.at += width
			continue
		case c < ' ':
			return "", malformed(s.at)
		case c >= utf8.RuneSelf:
			plain = false
		}
		if pair {
			return "", fault.New(fault.Invalid, "malformed-json", "the body has half a surrogate pair near byte %d", s.at)
		}
		s.at++
	}
	return "", malformed(s.at)
}

// escape returns an escape's width and, of \u, its code unit.
func (s *scanner) escape() (width int, unit uint64) {
	rest := s.raw[s.at:]
	if len(rest) < 2 {
		return 0, 0
	}
	if rest[1] != 'u' {
		return 2, 0
	}
	if len(rest) < 6 {
		return 0, 0
	}
	unit, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return 6, unit
}

// member is one member that a struct has.
type member struct {
	name string
	t    reflect.Type
	seen bool
}

func find(known []member, name string) int {
	for i := range known {
		if known[i].name == name {
			return i
		}
	}
	return -1
}

// members appends the members of a struct as encoding/json names them; nil for
// any other type.
func members(known []member, t reflect.Type) []member {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || f.Tag.Get("json") == "-" {
			continue
		}
		if f.Anonymous && tag == "" {
			if inner := plain(f.Type); inner != nil && inner.Kind() == reflect.Struct {
				known = members(known, inner)
				continue
			}
		}
		if !f.IsExported() {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		known = append(known, member{name: tag, t: f.Type})
	}
	if known == nil {
		known = []member{}
	}
	return known
}

// plain strips pointers. A type that reads itself says nothing about its
// members: nil.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(unmarshaler()) {
		return nil
	}
	return t
}

func unmarshaler() reflect.Type { return reflect.TypeFor[json.Unmarshaler]() }

// short cuts a client's text before it is told back; quote does so for a detail.
func short(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

func quote(name string) string { return strconv.Quote(short(name)) }
