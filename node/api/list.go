package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"celld/store"
	"celld/store/fault"
)

// list is one page that is asked for: how to read its rows, and how to show one.
type list[Row any] struct {
	collection string
	filter     any // what the cursor is bound to, besides tenant, route and sort
	page       page
	rows       func(conn *store.Conn, behind int64, limit int) (rows []Row, next int64, err error)
	render     func(b []byte, row *Row) []byte
}

func (l list[Row]) serve(s *Server, c *call) (answer, error) {
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
	var behind int64
	a := answer{status: http.StatusOK}
	ctx, cancel := context.WithTimeout(c.r.Context(), scanTime)
	defer cancel()
	err = s.open(c, &a, func(f *store.File) error {
		return f.Scan(ctx, func(conn *store.Conn) (err error) {
			rows, behind, err = l.rows(conn, after, l.page.limit)
			return err
		})
	})
	if err != nil {
		return answer{}, err
	}
	next := ""
	if behind != 0 { // also of a page that is not full
		next = sealer.seal(behind)
		a.next = c.nextPage(l.collection, next)
	}
	b := append(make([]byte, 0, 32+320*len(rows)), `{"items":[`...)
	for i := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = l.render(b, &rows[i])
	}
	b = append(b, ']')
	if next != "" {
		b = appendText(append(b, `,"nextCursor":`...), next)
	}
	a.content = append(b, '}')
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
