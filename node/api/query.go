package api

import (
	"math"
	"net/http"
	"strings"

	"github.com/bojanz/currency"

	"celld/gateway/body"
	"celld/raftfsm/cellfsm"
)

const (
	defaultLimit = 50
	maxLimit     = 500
)

// page is how much of a list is asked for, and from where.
type page struct {
	sort   string
	order  cellfsm.Order
	limit  int
	cursor string // "" for the beginning
}

// takePage takes sort, limit and cursor; id is the name of the list's id in
// sort.
func takePage(q *body.Query, r *http.Request, id string) (page, error) {
	// Before the query's own rules, so that whatever is no cursor gets one answer.
	for _, given := range r.URL.Query()["cursor"] {
		if !plausibleCursor(given) {
			return page{}, errInvalidCursor
		}
	}
	p := page{limit: int(q.Uint("limit", 1, maxLimit, defaultLimit)), cursor: q.Text("cursor", maxCursor)}
	p.sort = q.OneOf("sort", id, id, "-"+id, "createdAt", "-createdAt")
	p.order.Descending = strings.HasPrefix(p.sort, "-")
	return p, nil
}

func takeTime(q *body.Query, name string) *int64 {
	s := q.Text(name, 64)
	if s == "" {
		return nil
	}
	micros, ok := parseTime(s)
	if !ok {
		q.Fail(name, "the parameter %s "+wantedTime, name)
		return nil
	}
	return &micros
}

func takeStatus(q *body.Query) *cellfsm.Status {
	var names []string
	for _, s := range cellfsm.Statuses() {
		names = append(names, string(s))
	}
	status := cellfsm.Status(q.OneOf("status", "", names...))
	if status == "" {
		return nil
	}
	return &status
}

func takeCurrency(q *body.Query) *string {
	code := q.Text("currency", 64)
	if code == "" {
		return nil
	}
	if _, known := currency.GetDigits(code); !known {
		q.Fail("currency", "the parameter currency must be an ISO 4217 code in capitals, like USD")
	}
	return &code
}

func takeCustomer(q *body.Query) *cellfsm.CustomerID {
	id := cellfsm.CustomerID(q.Uint("customerId", 1, math.MaxInt64, 0))
	if id == 0 {
		return nil
	}
	return &id
}

func takeReference(q *body.Query) *string {
	reference := q.Text("reference", maxReference*4)
	if reference == "" {
		return nil
	}
	return &reference
}
