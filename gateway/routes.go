package gateway

import (
	"net/http"

	"celld/store/tenant"
)

// Target says who answers a route.
type Target uint8

const (
	// Public routes need no credentials; the gateway answers them.
	Public Target = iota + 1
	// Directory routes are answered from the directory.
	Directory
	// Cell routes are passed on to the cell that owns the tenant.
	Cell
)

// Route is one line of the public surface.
type Route struct {
	Name    string        // stable: label in logs and metrics, operation of idempotency keys
	Method  string        //
	Pattern string        // the path; {tenant} is a tenant's public id
	Target  Target        //
	Action  tenant.Action // what the caller's role in {tenant} must include; 0 where the path names no tenant
	Success int           // the status of a success

	serve func(*Gateway, *exchange, *http.Request) error
}

// Routes is the whole public surface. Whatever is not here is 401 without
// credentials and 404 with them. The order is that of matching: the routes that
// are asked for most come first.
func Routes() []Route {
	const (
		get, head, post, put, patch, del = http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

		tenants   = "/tenants"
		one       = "/tenants/{tenant}"
		invoices  = one + "/invoices"
		invoice   = one + "/invoices/{invoice}"
		customers = one + "/customers"
		customer  = one + "/customers/{customer}"
		members   = one + "/members"
		member    = one + "/members/{user}"
		invites   = one + "/invites"
		invite    = one + "/invites/{invite}"
	)
	return []Route{
		{"getInvoice", get, invoice, Cell, tenant.ReadRecords, 200, (*Gateway).forward},
		{"updateInvoice", put, invoice, Cell, tenant.WriteRecords, 200, (*Gateway).forward},
		{"listInvoices", get, invoices, Cell, tenant.ReadRecords, 200, (*Gateway).forward},
		{"createInvoice", post, invoices, Cell, tenant.WriteRecords, 201, (*Gateway).forward},
		{"getCustomer", get, customer, Cell, tenant.ReadRecords, 200, (*Gateway).forward},
		{"updateCustomer", put, customer, Cell, tenant.WriteRecords, 200, (*Gateway).forward},
		{"listCustomers", get, customers, Cell, tenant.ReadRecords, 200, (*Gateway).forward},
		{"createCustomer", post, customers, Cell, tenant.WriteRecords, 201, (*Gateway).forward},

		{"getTenant", get, one, Directory, tenant.ReadTenant, 200, (*Gateway).getTenant},
		{"listMembers", get, members, Directory, tenant.ReadTenant, 200, (*Gateway).listMembers},
		{"setRole", patch, member, Directory, tenant.ManageMembers, 200, (*Gateway).setRole},
		{"removeMember", del, member, Directory, tenant.LeaveTenant, 204, (*Gateway).removeMember},
		{"createInvite", post, invites, Directory, tenant.ManageMembers, 201, (*Gateway).createInvite},
		{"listInvites", get, invites, Directory, tenant.ManageMembers, 200, (*Gateway).listInvites},
		{"revokeInvite", del, invite, Directory, tenant.ManageMembers, 204, (*Gateway).revokeInvite},

		{"createTenant", post, tenants, Directory, 0, 201, (*Gateway).createTenant},
		{"listTenants", get, tenants, Directory, 0, 200, (*Gateway).listTenants},
		{"acceptInvite", post, "/invites/accept", Directory, 0, 200, (*Gateway).acceptInvite},
		{"getMe", get, "/me", Directory, 0, 200, (*Gateway).getMe},
		{"closeSession", del, "/sessions/current", Directory, 0, 204, (*Gateway).closeSession},

		{"openSession", post, "/sessions", Public, 0, 201, (*Gateway).openSession},
		{"health", get, "/healthz", Public, 0, 200, (*Gateway).health},
		{"ready", get, "/readyz", Public, 0, 200, (*Gateway).ready},
		{"headHealth", head, "/healthz", Public, 0, 200, (*Gateway).health},
		{"headReady", head, "/readyz", Public, 0, 200, (*Gateway).ready},
		{"openapi", get, "/openapi.yaml", Public, 0, 200, (*Gateway).openapi},
	}
}
