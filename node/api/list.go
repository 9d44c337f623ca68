package api

import (
	"net/url"
	"strconv"

	"celld/raftfsm/cellfsm"
	"celld/store/fault"
)

// listJSON is a page of a list.
type listJSON[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"nextCursor,omitempty"`
}

// list is a list that a request walks.
type list struct {
	*sealer
	behind *cellfsm.Position
}

func (s *Server) openList(c *call, filter any, p page) (list, error) {
	t, err := s.cfg.Space.Tenant(c.scope.UID)
	if err != nil {
		return list{}, err
	}
	sealer, err := newSealer(t, c.route.Name, filter, p.order)
	if err != nil || p.cursor == "" {
		return list{sealer, nil}, err
	}
	behind, err := sealer.open(p.cursor)
	return list{sealer, &behind}, err
}

func (c *call) nextPage(collection, cursor string) string {
	if cursor == "" {
		return ""
	}
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
