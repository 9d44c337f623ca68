package e2e

import (
	"net/http"
	"testing"

	"celld/store/tenant"
)

// expectation says what one route answers. It is written down here a second time,
// apart from the route table, so that a slip there is seen.
type expectation struct {
	// right is what the caller's role in the path's tenant must include; 0 where
	// the path names no tenant. The owner of credentials is enough then.
	right tenant.Action
	open  bool // answered to anybody
	ok    int  // status of a success
	// oddFirst: a malformed id is unknown before the right is looked at, because
	// with the caller's own id everybody has the right.
	oddFirst bool
	// aim makes the request of a success in a tenant: a fresh object where the
	// request changes or ends one. It is nil where method and path are enough.
	aim func(t *testing.T, m *matrix, in string, fresh bool) shot
}

// shot is one request of a route: the object that {...} in the pattern stands
// for, and what is sent along.
type shot struct {
	object  string
	body    any
	ifMatch string
}

// expectations is one entry for each route of the public surface, by its name.
func expectations() map[string]expectation {
	const created, noContent, ok = http.StatusCreated, http.StatusNoContent, http.StatusOK
	return map[string]expectation{
		"getInvoice":     {right: tenant.ReadRecords, ok: ok, aim: standing("17")},
		"updateInvoice":  {right: tenant.WriteRecords, ok: ok, aim: aimInvoice},
		"listInvoices":   {right: tenant.ReadRecords, ok: ok},
		"createInvoice":  {right: tenant.WriteRecords, ok: created, aim: sending(object{"customerId": 4, "amountMinor": 1, "currency": "USD"})},
		"getCustomer":    {right: tenant.ReadRecords, ok: ok, aim: standing("4")},
		"updateCustomer": {right: tenant.WriteRecords, ok: ok, aim: aimCustomer},
		"listCustomers":  {right: tenant.ReadRecords, ok: ok},
		"createCustomer": {right: tenant.WriteRecords, ok: created, aim: sending(object{"name": "Thrown away"})},

		"getTenant":    {right: tenant.ReadTenant, ok: ok},
		"listMembers":  {right: tenant.ReadTenant, ok: ok},
		"setRole":      {right: tenant.ManageMembers, ok: ok, aim: aimMember(object{"role": "viewer"})},
		"removeMember": {right: tenant.ManageMembers, oddFirst: true, ok: noContent, aim: aimMember(nil)}, // of others; leaving is in TestTour
		"createInvite": {right: tenant.ManageMembers, ok: created, aim: sending(object{"email": "guest@example.org", "role": "viewer"})},
		"listInvites":  {right: tenant.ManageMembers, ok: ok},
		"revokeInvite": {right: tenant.ManageMembers, ok: noContent, aim: aimInvite},

		"createTenant": {ok: created, aim: sending(object{"name": "Thrown away"})},
		"listTenants":  {ok: ok},
		"acceptInvite": {ok: http.StatusNotFound, aim: sending(object{"token": "no-such-token"})}, // its success is in TestTour
		"getMe":        {ok: ok},
		"closeSession": {ok: http.StatusConflict}, // an API token is not a session; its success is in sessions

		"openSession": {open: true, ok: http.StatusUnauthorized, aim: sending(object{"email": "u8@eight.example", "password": "not the password"})},
		"health":      {open: true, ok: ok},
		"ready":       {open: true, ok: ok},
		"headHealth":  {open: true, ok: ok},
		"headReady":   {open: true, ok: ok},
		"openapi":     {open: true, ok: ok},
	}
}

func standing(id string) func(*testing.T, *matrix, string, bool) shot {
	return func(*testing.T, *matrix, string, bool) shot { return shot{object: id} }
}

func sending(body object) func(*testing.T, *matrix, string, bool) shot {
	return func(*testing.T, *matrix, string, bool) shot { return shot{body: body} }
}

func aimInvoice(t *testing.T, m *matrix, in string, fresh bool) shot {
	s := shot{object: "17", body: object{"customerId": 4, "amountMinor": 2, "currency": "USD"}, ifMatch: etag(1)}
	if fresh {
		s.object = path(newInvoice(t, m.owner(in), in, 4))[1:]
	}
	return s
}

func aimCustomer(t *testing.T, m *matrix, in string, fresh bool) shot {
	s := shot{object: "4", body: object{"name": "Changed"}, ifMatch: etag(1)}
	if fresh {
		s.object = path(newCustomer(t, m.owner(in), in))[1:]
	}
	return s
}

func aimMember(body any) func(*testing.T, *matrix, string, bool) shot {
	return func(t *testing.T, m *matrix, in string, fresh bool) shot {
		s := shot{object: m.standing[in], body: body}
		if fresh {
			s.object = m.w.newMember(t, m.owner(in), in, "member").name
		}
		return s
	}
}

func aimInvite(t *testing.T, m *matrix, in string, fresh bool) shot {
	s := shot{object: m.invite[in]}
	if fresh {
		s.object = m.newInvite(t, in)
	}
	return s
}
