package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"celld/gateway/pattern"
	"celld/store/fault"
)

// paths is a router in which each pattern is one entry: gorilla/mux finds the
// pattern, and the entry knows its methods. It never redirects, and Match puts
// nothing into the request.
type paths[R any] struct {
	router *mux.Router
	bare   map[string]*methods[R] // patterns without variables: one look-up
}

// methods is what one pattern answers.
type methods[R any] struct {
	routes map[string]R
	allow  string
}

// ServeHTTP is there for gorilla/mux, which wants a handler; it is never called.
func (m *methods[R]) ServeHTTP(http.ResponseWriter, *http.Request) {}

func newPaths[R any](lines []R, key func(R) (method, pattern string)) *paths[R] {
	p := &paths[R]{router: mux.NewRouter().SkipClean(true), bare: make(map[string]*methods[R])}
	known := make(map[string]*methods[R])
	for _, line := range lines {
		method, text := key(line)
		m := known[text]
		if m == nil {
			m = &methods[R]{routes: make(map[string]R)}
			known[text] = m
			if strings.Contains(text, "{") {
				p.router.NewRoute().MatcherFunc(pattern.Matcher(text, pattern.Decoded)).Handler(m)
			} else {
				p.bare[text] = m
			}
		}
		m.routes[method] = line
		names := make([]string, 0, len(m.routes))
		for name := range m.routes {
			names = append(names, name)
		}
		slices.Sort(names)
		m.allow = strings.Join(names, ", ")
	}
	return p
}

// find returns the route of a request and the variables of its path. The error
// is 404, or 405, for which h gets Allow.
func (p *paths[R]) find(h http.Header, r *http.Request) (route R, vars map[string]string, err error) {
	m, ok := p.bare[r.URL.Path]
	if !ok {
		var match mux.RouteMatch
		if !p.router.Match(r, &match) || match.Handler == nil {
			return route, nil, fault.Unknown()
		}
		m, ok = match.Handler.(*methods[R])
		if !ok {
			return route, nil, fault.Unknown()
		}
		vars = match.Vars
	}
	route, ok = m.routes[r.Method]
	if !ok {
		h.Set("Allow", m.allow)
		return route, nil, fault.New(fault.Method, "method-not-allowed", "this path answers %s", m.allow)
	}
	return route, vars, nil
}

// cleanPath refuses paths that two programs could read differently: encoded
// slashes and backslashes, dot segments in any spelling, empty segments, control
// characters. Whoever passes has one path, which is r.URL.Path.
func cleanPath(r *http.Request) error {
	path := r.URL.Path
	ok := len(path) > 0 && path[0] == '/' && r.URL.Opaque == ""
	start := 1
	for i := 1; ok && i <= len(path); i++ {
		if i < len(path) {
			if c := path[i]; c < ' ' || c == 0x7f || c == '\\' {
				ok = false
			}
			if path[i] != '/' {
				continue
			}
		}
		segment := path[start:i]
		if segment == "." || segment == ".." || segment == "" && len(path) > 1 {
			ok = false
		}
		start = i + 1
	}
	// RawPath is set only where the encoding is not the plain one.
	if raw := r.URL.RawPath; ok && raw != "" {
		lower := strings.ToLower(raw)
		ok = !strings.Contains(lower, "%2f") && !strings.Contains(lower, "%5c")
	}
	if !ok {
		return fault.New(fault.Invalid, "invalid-path", "the path has an empty or dot segment, an encoded slash or a control character")
	}
	return nil
}

// headerBounds refuses requests with more headers than any client of this API
// needs.
func headerBounds(h http.Header) error {
	lines, bytes := 0, 0
	for name, values := range h {
		for _, v := range values {
			lines++
			bytes += len(name) + len(v) + len(": \r\n")
		}
	}
	if lines > maxHeaders || bytes > maxHeaderBytes {
		return fault.New(fault.Headers, "headers-too-large", "the headers may have %d lines and %d bytes", maxHeaders, maxHeaderBytes)
	}
	return nil
}
