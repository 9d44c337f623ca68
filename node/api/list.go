package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"celld/store"
	"celld/store/fault"
)

// listJSON is a page of a list.
type listJSON[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"nextCursor,omitempty"`
}

// list is one page that is asked for: how to read its rows, and how to show one.
type list[Row, JSON any] struct {
	collection string
	filter     any // what the cursor is bound to, besides tenant, route and sort
	page       page
	rows       func(conn *store.Conn, behind int64, limit int) ([]Row, error)
	id         func(Row) int64
	render     func(Row) JSON
}

func (l list[Row, JSON]) serve(s *Server, c *call) (answer, error) {
	if err := s.settle(c); err != nil {
		return answer{}, err
	}
	t, err := s.cfg.Space.Tenant(c.scope.UID)
	if err != nil {
		return answer{}, err
	}
	sealer, err := newSealer(t, c.route.Name, l.filter, l.page.sort)
	if err != nil {
		return answer{}, err
	}
	var after int64
	if l.page.cursor != "" {
		if after, err = sealer.open(l.page.cursor); err != nil {
			return answer{}, err
		}
	}
	var rows []Row
	a := answer{status: http.StatusOK}
	ctx, cancel := context.WithTimeout(c.r.Context(), scanTime)
	defer cancel()
	err = s.open(c, &a, func(f *store.File) error {
		return f.Scan(ctx, func(conn *store.Conn) (err error) {
			rows, err = l.rows(conn, after, l.page.limit+1) // one more tells whether a next page has any
			return err
		})
	})
	if err != nil {
		return answer{}, err
	}
	var out listJSON[JSON]
	if len(rows) > l.page.limit {
		rows = rows[:l.page.limit]
		out.Next = sealer.seal(l.id(rows[len(rows)-1]))
		a.next = c.nextPage(l.collection, out.Next)
	}
	out.Items = make([]JSON, len(rows))
	for i, row := range rows {
		out.Items[i] = l.render(row)
	}
	a.body = out
	return a, nil
}

func (c *call) nextPage(collection, cursor string) string {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return "" // it was parsed before
	}
	values.Set("cursor", cursor)
	return "/tenants/" + string(c.scope.Tenant) + "/" + collection + "?" + values.Encode()
}

func (c *call) path(collection string, id int64) string {
	return "/tenants/" + string(c.scope.Tenant) + "/" + collection + "/" + strconv.FormatInt(id, 10)
}

// id is an id in the path. What cannot be one is as unknown as one that is not
// there.
func (c *call) id(name string) (int64, error) {
	id, ok := parsePositive(c.vars[name])
	if !ok {
		return 0, fault.Unknown()
	}
	return id, nil
}
