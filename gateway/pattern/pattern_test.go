package pattern

import (
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/gorilla/mux"
	"pgregory.net/rapid"
)

// TestLikeMux holds the matcher against mux's own path templates.
func TestLikeMux(t *testing.T) {
	patterns := []string{"/tenants/{tenant}", "/tenants/{tenant}/invoices", "/tenants/{tenant}/invoices/{invoice}", "/invites/accept", "/a/{b}/{c}"}
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringOfN(rapid.SampledFrom([]rune("/atb{}%")), 0, 12, -1).Draw(t, "path")
		if rapid.Bool().Draw(t, "near") {
			path = rapid.SampledFrom([]string{"/tenants", "/invites", ""}).Draw(t, "first") +
				rapid.SampledFrom([]string{"/T7", "/accept", "/", ""}).Draw(t, "second") +
				rapid.SampledFrom([]string{"/invoices", "/x", "/", ""}).Draw(t, "third") + path
		}
		pattern := rapid.SampledFrom(patterns).Draw(t, "pattern")
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}
		for name, read := range map[string]func(*http.Request) string{"decoded": Decoded, "encoded": Encoded} {
			ours, theirs := mux.NewRouter(), mux.NewRouter()
			if name == "encoded" {
				ours.UseEncodedPath()
				theirs.UseEncodedPath()
			}
			ours.NewRoute().MatcherFunc(Matcher(pattern, read))
			theirs.NewRoute().Path(pattern)
			var got, want mux.RouteMatch
			is, should := ours.Match(r, &got), theirs.Match(r, &want)
			if is != should || is && !maps.Equal(got.Vars, want.Vars) {
				t.Fatalf("%s %q against %s: %t %v, mux says %t %v", name, path, pattern, is, got.Vars, should, want.Vars)
			}
		}
	})
}

func TestBadPatterns(t *testing.T) {
	for _, bad := range []string{"", "/", "/a//b", "/{", "/{}", "/{a", "/a}", "/x{a}", "/{a}{b}"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken", bad)
				}
			}()
			Matcher(bad, Decoded)
		}()
	}
}

func BenchmarkMatcher(b *testing.B) {
	for name, route := range map[string]func(*mux.Router) *mux.Route{
		"segments": func(r *mux.Router) *mux.Route {
			return r.NewRoute().MatcherFunc(Matcher("/tenants/{tenant}/invoices/{invoice}", Decoded))
		},
		"template": func(r *mux.Router) *mux.Route { return r.NewRoute().Path("/tenants/{tenant}/invoices/{invoice}") },
	} {
		b.Run(name, func(b *testing.B) {
			router := mux.NewRouter()
			route(router)
			r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/tenants/T7/invoices/17"}}
			b.ReportAllocs()
			for b.Loop() {
				var match mux.RouteMatch
				if !router.Match(r, &match) {
					b.Fatal("no match")
				}
			}
		})
	}
}
