package pattern

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// segment is one part of a pattern between slashes.
type segment struct {
	text     string // fixed text, or the variable's name
	variable bool
}

// Matcher matches requests whose path, as path reads it, follows a pattern like
// /tenants/{tenant}, and puts the variables into the match. A pattern that is not
// of that form is a mistake of the program and panics.
func Matcher(pattern string, path func(*http.Request) string) mux.MatcherFunc {
	segments := parse(pattern)
	variables := 0
	for _, s := range segments {
		if s.variable {
			variables++
		}
	}
	return func(r *http.Request, match *mux.RouteMatch) bool {
		given := path(r)
		if !fits(segments, given) {
			return false
		}
		match.Vars = make(map[string]string, variables)
		for _, s := range segments {
			var value string
			value, given = cut(given)
			if s.variable {
				match.Vars[s.text] = value
			}
		}
		return true
	}
}

// Decoded is the path of a request as it reads.
func Decoded(r *http.Request) string { return r.URL.Path }

// Encoded is the path of a request as it was sent.
func Encoded(r *http.Request) string { return r.URL.EscapedPath() }

func parse(pattern string) []segment {
	var out []segment
	rest := pattern
	for rest != "" {
		var text string
		text, rest = cut(rest)
		name, isVariable := text, false
		if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
			name, isVariable = text[1:len(text)-1], true
		}
		if name == "" || strings.ContainsAny(name, "{}") {
			panic(fmt.Sprintf("pattern: bad pattern %q", pattern))
		}
		out = append(out, segment{name, isVariable})
	}
	if len(out) == 0 {
		panic("pattern: empty pattern")
	}
	return out
}

// fits reports whether a path follows the segments.
func fits(segments []segment, path string) bool {
	for _, s := range segments {
		if path == "" || path[0] != '/' {
			return false
		}
		var value string
		value, path = cut(path)
		if value == "" || !s.variable && value != s.text {
			return false
		}
	}
	return path == ""
}

// cut takes the first segment off a path that begins with a slash, and returns
// what follows it.
func cut(path string) (first, rest string) {
	path = strings.TrimPrefix(path, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}
