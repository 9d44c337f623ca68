package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what sort of failure an Error is. The set is closed: a kind has one
// HTTP status (package gateway/problem), and a test walks them all.
type Kind uint8

const (
	Internal             Kind = iota // a fault of ours; 500
	Invalid                          // the request is malformed; 400
	Unauthenticated                  // no credentials, or bad ones; 401
	Forbidden                        // a member without the right; 403
	NotFound                         // unknown or foreign, never told apart; 404
	Method                           // the path exists, the method does not; 405
	Conflict                         // the state forbids it now; 409
	Precondition                     // the expected version is not the current one; 412
	TooLarge                         // the body is over its bound; 413
	MediaType                        // the body is not of a type we read; 415
	Impossible                       // well-formed and cannot be done; 422
	PreconditionRequired             // an expected version must be given; 428
	Quota                            // over a limit; 429
	Headers                          // the headers are over their bound; 431
	Unavailable                      // try again; 503
	Fenced                           // the tenant's state or epoch refuses writers; 503 to a client
	Moved                            // this cell does not own the tenant at that epoch; 503 to a client
	kinds
)

var kindNames = [kinds]string{
	"internal", "invalid", "unauthenticated", "forbidden", "not-found", "method-not-allowed", "conflict",
	"precondition-failed", "too-large", "unsupported-media-type", "impossible", "precondition-required",
	"quota", "headers-too-large", "unavailable", "fenced", "moved",
}

// Kinds returns every kind, for tables and the tests that walk them.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String is the kind's name in logs and on the wire between processes.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind-%d", uint8(k))
	}
	return kindNames[k]
}

// Error is a failure with everything that a caller may be told.
type Error struct {
	Kind   Kind
	Slug   string         // stable name of this very problem, e.g. "version-mismatch"
	Detail string         // one sentence for the caller: what is wrong and what to do
	Fields map[string]any // extension members of the problem, e.g. "currentVersion"
	Retry  time.Duration  // when it makes sense to try again; 0 says nothing
	Err    error          // the cause: for logs, never shown to a caller
}

// New makes an Error whose detail is formatted for the caller.
func New(kind Kind, slug, format string, args ...any) *Error {
	return &Error{Kind: kind, Slug: slug, Detail: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Slug
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, sentinel) compare by kind and slug, so that an error
// which crossed the wire equals the sentinel it was made from.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Slug == e.Slug
}

// With returns a copy that carries the extension member name.
func (e *Error) With(name string, value any) *Error {
	c := *e
	c.Fields = make(map[string]any, len(e.Fields)+1)
	for k, v := range e.Fields {
		c.Fields[k] = v
	}
	c.Fields[name] = value
	return &c
}

// After returns a copy that tells the caller when to try again.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.Retry = d
	return &c
}

// Because returns a copy with the cause err.
func (e *Error) Because(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// As returns the *Error in err's chain; any other error becomes Internal with
// err as its cause. nil stays nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Slug: "internal", Err: err}
}

// Of returns the kind of err, Internal for an error of another type. nil has no
// kind: whoever asks for it has mistaken a success for a failure, and is told
// Internal as well.
func Of(err error) Kind {
	if e := As(err); e != nil {
		return e.Kind
	}
	return Internal
}

// Unknown is NotFound as every layer says it: without a word more, so that a
// foreign id and one that never existed look the same.
func Unknown() *Error { return &Error{Kind: NotFound, Slug: "not-found"} }
