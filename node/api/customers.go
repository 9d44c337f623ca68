package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"celld/gateway/body"
	"celld/node/records"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
)

// Bounds of a customer's texts, in characters.
const (
	maxName      = 200
	maxReference = 100
	maxEmail     = 254
	maxCountry   = 100
)

func (c *call) customer(b []byte, row *cellfsm.Customer) []byte {
	return appendCustomer(b, c.scope.Tenant, row)
}

// customerRequest is the body that creates a customer; updateCustomerRequest
// changes one.
type customerRequest struct {
	Name      *string `json:"name"`
	Reference *string `json:"reference"`
	Email     *string `json:"email"`
	Country   *string `json:"country"`
}

type updateCustomerRequest struct {
	customerRequest
	Expected json.RawMessage `json:"expectedVersion"`
}

func (r *customerRequest) check(f *fields) (out cellfsm.CustomerFields) {
	if f.need("name", r.Name != nil) {
		if name := f.text("name", r.Name, 1, maxName); name != nil {
			out.Name = *name
			if strings.TrimSpace(out.Name) == "" {
				f.fail(invalidField("name", "must not be blank"))
			}
		}
	}
	out.Reference = f.text("reference", r.Reference, 1, maxReference)
	out.Email = f.text("email", r.Email, 1, maxEmail)
	if out.Email != nil && !plausibleEmail(*out.Email) {
		f.fail(invalidField("email", "must look like name@example.org"))
	}
	out.Country = f.text("country", r.Country, 1, maxCountry)
	return out
}

// plausibleEmail asks for no more than what every address has: whether one is
// good is known when mail arrives there.
func plausibleEmail(s string) bool {
	at := strings.LastIndexByte(s, '@')
	return at > 0 && at < len(s)-1 && !strings.ContainsAny(s, " \t\r\n")
}

func decodeCreateCustomer(raw []byte) (out cellfsm.CreateCustomer, err error) {
	var r customerRequest
	if err := body.Decode(raw, &r); err != nil {
		return out, err
	}
	var f fields
	out.Fields = r.check(&f)
	return out, f.done()
}

func decodeUpdateCustomer(raw []byte) (out cellfsm.UpdateCustomer, expected *integer, err error) {
	var r updateCustomerRequest
	if err := body.Decode(raw, &r); err != nil {
		return out, nil, err
	}
	var f fields
	out.Fields = r.check(&f)
	expected = f.integer("expectedVersion", r.Expected)
	return out, expected, f.done()
}

func (s *Server) createCustomer(c *call) (answer, error) {
	raw, err := body.Read(c.w, c.r, body.Limit)
	if err != nil {
		return answer{}, err
	}
	cmd, err := decodeCreateCustomer(raw)
	if err != nil {
		return answer{}, err
	}
	var row cellfsm.Customer
	out, err := s.propose(c, cellfsm.CreateCustomerNumber, cmd, &row)
	if err != nil {
		return answer{}, err
	}
	a := c.written(http.StatusCreated, c.customer(nil, &row), row.Version, out)
	a.location = c.path("customers", int64(row.ID))
	return a, nil
}

func (s *Server) updateCustomer(c *call) (answer, error) {
	id, err := c.id("customer")
	if err != nil {
		return answer{}, err
	}
	raw, err := body.Read(c.w, c.r, body.Limit)
	if err != nil {
		return answer{}, err
	}
	cmd, version, err := decodeUpdateCustomer(raw)
	if err != nil {
		return answer{}, err
	}
	cmd.ID = cellfsm.CustomerID(id)
	if cmd.Expected, err = expected(c.r.Header, version); err != nil {
		return answer{}, err
	}
	var row cellfsm.Customer
	out, err := s.propose(c, cellfsm.UpdateCustomerNumber, cmd, &row)
	if err != nil {
		return answer{}, err
	}
	return c.written(http.StatusOK, c.customer(nil, &row), row.Version, out), nil
}

// written is the answer to a write.
func (c *call) written(status int, record []byte, version cellfsm.Version, out raftfsm.Outcome) answer {
	return answer{status: status, content: record, epoch: c.scope.Epoch, index: out.Index, version: version, replayed: out.Replayed}
}

func (s *Server) readCustomer(c *call) (answer, error) {
	id, err := c.id("customer")
	if err != nil {
		return answer{}, err
	}
	return s.one(c, cellfsm.CustomerKind, id, records.Public, func(conn *store.Conn) ([]byte, cellfsm.Version, error) {
		row, found, err := cellfsm.ReadCustomer(conn, c.scope.Tenant, cellfsm.CustomerID(id))
		if err != nil || !found {
			return nil, 0, err
		}
		return c.customer(nil, &row), row.Version, nil
	})
}

func (s *Server) listCustomers(c *call) (answer, error) {
	q := body.NewQuery(c.r)
	filter := cellfsm.CustomerFilter{
		Reference: takeReference(q), CreatedAfter: takeTime(q, "createdAfter"), CreatedBefore: takeTime(q, "createdBefore"),
	}
	p, err := takePage(q, c.r, "customerId")
	if err == nil {
		err = q.Done()
	}
	if err != nil {
		return answer{}, err
	}
	return list[cellfsm.Customer]{
		collection: "customers", filter: filter, page: p,
		rows: func(conn *store.Conn, behind int64, limit int) ([]cellfsm.Customer, int64, error) {
			rows, next, err := cellfsm.ListCustomers(conn, c.scope.Tenant, filter, p.order, cellfsm.CustomerID(behind), limit)
			return rows, int64(next), err
		},
		render: c.customer,
	}.serve(s, c)
}
