package problem

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"celld/store/fault"
)

// ContentType is the media type of every problem.
const ContentType = "application/problem+json"

// HeaderKind names the kind of a problem whose status does not tell it.
const HeaderKind = "Celld-Kind"

// maxBody bounds what Read takes from an answer.
const maxBody = 64 << 10

// line is one kind's row: its status and the title of every problem of the kind.
type line struct {
	kind   fault.Kind
	status int
	title  string
}

// lines is the one table from kind to status. A status that occurs twice is read
// back as the first kind with it, unless HeaderKind says otherwise.
var lines = [...]line{
	{fault.Internal, http.StatusInternalServerError, "Internal error"},
	{fault.Invalid, http.StatusBadRequest, "Malformed request"},
	{fault.Unauthenticated, http.StatusUnauthorized, "Not authenticated"},
	{fault.Forbidden, http.StatusForbidden, "Forbidden"},
	{fault.NotFound, http.StatusNotFound, "Not found"},
	{fault.Method, http.StatusMethodNotAllowed, "Method not allowed"},
	{fault.Conflict, http.StatusConflict, "Conflict"},
	{fault.Precondition, http.StatusPreconditionFailed, "Precondition failed"},
	{fault.TooLarge, http.StatusRequestEntityTooLarge, "Body too large"},
	{fault.MediaType, http.StatusUnsupportedMediaType, "Unsupported media type"},
	{fault.Impossible, http.StatusUnprocessableEntity, "Cannot be done"},
	{fault.PreconditionRequired, http.StatusPreconditionRequired, "Precondition required"},
	{fault.Quota, http.StatusTooManyRequests, "Over a limit"},
	{fault.Headers, http.StatusRequestHeaderFieldsTooLarge, "Headers too large"},
	{fault.Unavailable, http.StatusServiceUnavailable, "Unavailable"},
	{fault.Fenced, http.StatusServiceUnavailable, "Unavailable"},
	{fault.Moved, http.StatusServiceUnavailable, "Unavailable"},
}

func lineOf(kind fault.Kind) line {
	for _, l := range lines {
		if l.kind == kind {
			return l
		}
	}
	return lines[0]
}

// Status is the HTTP status of a kind.
func Status(kind fault.Kind) int { return lineOf(kind).status }

// Write answers r with err as a problem. Whatever is not a *fault.Error is an
// internal error, and of that the client learns nothing but the request id;
// logging it is the caller's. Headers that w already has, Allow for one, stay. The
// problem's request id is the answer's, or that of r's context.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	e := fault.As(err)
	if e == nil {
		e = &fault.Error{Kind: fault.Internal}
	}
	l := lineOf(e.Kind)
	slug, detail, fields := e.Slug, e.Detail, e.Fields
	switch {
	case e.Kind == fault.NotFound:
		slug, detail, fields = "not-found", "", nil
	case l.kind == fault.Internal:
		slug, detail, fields = "internal", "the server failed; its log has more under this request id", nil
	case slug == "":
		slug = e.Kind.String()
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	if l.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if l.status == http.StatusServiceUnavailable || l.status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.FormatInt(seconds(e.Retry), 10))
	}
	if e.Kind == fault.Fenced || e.Kind == fault.Moved {
		h.Set(HeaderKind, e.Kind.String())
	}
	id := h.Get(HeaderRequestID)
	if id == "" {
		id = RequestID(r.Context())
	}
	body := encode(slug, l, detail, id, fields)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(l.status)
	_, _ = w.Write(body) // a client that has gone reads no error either
}

// seconds rounds up, and is at least one.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// reserved are the members that no extension member may be named after.
func reserved(name string) bool {
	switch name {
	case "type", "title", "status", "detail", "requestId":
		return true
	}
	return false
}

func encode(slug string, l line, detail, requestID string, fields map[string]any) []byte {
	b := make([]byte, 0, 256)
	b = member(append(b, '{'), "type", slug)
	b = member(append(b, ','), "title", l.title)
	b = member(append(b, ','), "status", l.status)
	if detail != "" {
		b = member(append(b, ','), "detail", detail)
	}
	if requestID != "" {
		b = member(append(b, ','), "requestId", requestID)
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		if !reserved(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b = member(append(b, ','), name, fields[name])
	}
	return append(b, '}', '\n')
}

// member appends "name":value. A value that has no JSON becomes null: a problem
// is written in any case.
func member(b []byte, name string, value any) []byte {
	key, _ := json.Marshal(name)
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte("null")
	}
	return append(append(append(b, key...), ':'), text...)
}

// Read is Write's inverse: the error that an answer carries, nil for a status
// below 400. It reads the body and leaves closing it to the caller. The request
// id is found in Fields under requestId.
func Read(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return (&fault.Error{Kind: kindOf(resp), Slug: "unreadable-answer", Detail: "the answer broke off"}).Because(err)
	}
	return Parse(resp.StatusCode, resp.Header, raw)
}

// Parse is Read for an answer whose body is in memory already.
func Parse(status int, header http.Header, raw []byte) error {
	if status < 400 {
		return nil
	}
	e := &fault.Error{Kind: kindOf(&http.Response{StatusCode: status, Header: header}), Retry: retryAfter(header)}
	if !strings.HasPrefix(header.Get("Content-Type"), ContentType) {
		e.Slug, e.Detail = "unexpected-answer", "the answer is not a problem but status "+strconv.Itoa(status)
		return e
	}
	var all map[string]any
	if err := decode(raw, &all); err != nil {
		e.Slug, e.Detail = "unexpected-answer", "the answer is not a readable problem"
		return e.Because(err)
	}
	e.Slug, _ = all["type"].(string)
	e.Detail, _ = all["detail"].(string)
	for name, value := range all {
		if !reserved(name) || name == "requestId" {
			if e.Fields == nil {
				e.Fields = make(map[string]any, len(all))
			}
			e.Fields[name] = value
		}
	}
	return e
}

// decode keeps numbers as they stand, so that versions pass unchanged.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the problem")
	}
	return nil
}

func kindOf(resp *http.Response) fault.Kind {
	name := resp.Header.Get(HeaderKind)
	found := fault.Internal
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].status == resp.StatusCode {
			if lines[i].kind.String() == name {
				return lines[i].kind
			}
			found = lines[i].kind
		}
	}
	if found == fault.Internal && (resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout) {
		return fault.Unavailable
	}
	return found
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 20)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
