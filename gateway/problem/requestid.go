package problem

import (
	"context"
	"math/rand/v2"
	"net/http"
)

// HeaderRequestID carries the request id from hop to hop and back to the client.
const HeaderRequestID = "X-Request-Id"

const maxRequestID = 128

type requestIDKey struct{}

// ContextWithRequestID returns a context that carries id.
func ContextWithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id that the context carries, "" without one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithRequestID wraps next so that each request has an id: the client's, where
// that is 1..128 of [A-Za-z0-9._-], otherwise a new one. The answer carries it.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := EnsureRequestID(w.Header(), r.Header)
		next.ServeHTTP(w, r.WithContext(ContextWithRequestID(r.Context(), id)))
	})
}

// EnsureRequestID takes the id from a request's headers, or makes one, and puts
// it into the answer's.
func EnsureRequestID(answer, request http.Header) string {
	if given := request[HeaderRequestID]; len(given) == 1 && validRequestID(given[0]) {
		answer[HeaderRequestID] = given // the slice is not written to by anyone
		return given[0]
	}
	id := newRequestID()
	answer[HeaderRequestID] = []string{id}
	return id
}

func validRequestID(s string) bool {
	if len(s) == 0 || len(s) > maxRequestID {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// newRequestID has 125 bits of randomness in 25 characters. They need to be
// unique, not secret, so the fast generator will do.
func newRequestID() string {
	const alphabet, half = "abcdefghijklmnopqrstuvwxyz234567", 12
	var id [2*half + 1]byte
	high, low := rand.Uint64(), rand.Uint64()
	for i := range half {
		id[i], id[half+i] = alphabet[high&31], alphabet[low&31]
		high, low = high>>5, low>>5
	}
	id[2*half] = alphabet[(high|low<<4)&31]
	return string(id[:])
}
