package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"celld/gateway/directory"
	"celld/gateway/problem"
	"celld/store/tenant"
)

// exchange is one request on its way through the gateway, and the writer of its
// answer. It is made anew for each request: nothing of one caller's can meet
// another's.
type exchange struct {
	http.ResponseWriter
	requestID string
	begun     time.Time
	route     *Route // nil until it is found
	vars      map[string]string

	caller directory.Session
	stale  bool // the directory is not fresh, and the caller asked for stale reads
	access directory.Access

	status int
	bytes  int64

	// For the log and the metrics.
	node     string
	attempts int
	err      error
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.bytes += int64(n)
	return n, err
}

// Unwrap serves http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// tenant is the public id of the tenant whose member the caller was found to be.
func (x *exchange) tenant() tenant.ID { return x.access.Placement.Tenant }

// answer writes v as the route's success.
func (x *exchange) answer(v any, replayed bool) error {
	if replayed {
		x.Header().Set("Idempotency-Replayed", "true")
	}
	return writeJSON(x, x.route.Success, v)
}

// done writes a success without content.
func (x *exchange) done(replayed bool) error {
	h := x.Header()
	if replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	h.Set("Cache-Control", "no-store")
	x.WriteHeader(http.StatusNoContent)
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a client that has gone reads no error either
	return nil
}

// refuse answers with err, once.
func (x *exchange) refuse(r *http.Request, err error) {
	x.err = err
	if x.status == 0 {
		problem.Write(x, r, err)
	}
}
