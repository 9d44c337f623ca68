package api

import (
	"net/http"

	"celld/store/tenant"
)

// Route is one line of the cell's surface.
type Route struct {
	Name   string // also the operation of its idempotency keys
	Method string
	Path   string
	Action tenant.Action // what the caller's role must include
	serve  func(*Server, *call) (answer, error)
}

// Routes is every route that a gateway may ask for on behalf of a member.
func Routes() []Route {
	const (
		customers = "/tenants/{tenant}/customers"
		customer  = "/tenants/{tenant}/customers/{customer}"
		invoices  = "/tenants/{tenant}/invoices"
		invoice   = "/tenants/{tenant}/invoices/{invoice}"
	)
	return []Route{
		{"createCustomer", http.MethodPost, customers, tenant.WriteRecords, (*Server).createCustomer},
		{"listCustomers", http.MethodGet, customers, tenant.ReadRecords, (*Server).listCustomers},
		{"getCustomer", http.MethodGet, customer, tenant.ReadRecords, (*Server).readCustomer},
		{"updateCustomer", http.MethodPut, customer, tenant.WriteRecords, (*Server).updateCustomer},
		{"createInvoice", http.MethodPost, invoices, tenant.WriteRecords, (*Server).createInvoice},
		{"listInvoices", http.MethodGet, invoices, tenant.ReadRecords, (*Server).listInvoices},
		{"getInvoice", http.MethodGet, invoice, tenant.ReadRecords, (*Server).readInvoice},
		{"updateInvoice", http.MethodPut, invoice, tenant.WriteRecords, (*Server).updateInvoice},
	}
}

// internalRoutes are for gateways and for the cell's own nodes, never for a
// member. What changes anything, and marking, needs a signed context.
func internalRoutes() []Route {
	return []Route{
		{"provisionTenant", http.MethodPut, "/internal/tenants/{uid}", tenant.ProvisionStore, (*Server).provisionTenant},
		{"markTenant", http.MethodPost, "/internal/tenants/{uid}/marks", 0, (*Server).markTenant},
		{"markResult", http.MethodGet, "/internal/marks/{mark}", 0, (*Server).markResult},
		{"status", http.MethodGet, "/internal/status", 0, (*Server).status},
		{"addMember", http.MethodPost, "/internal/members", 0, (*Server).addMember},
		{"removeMember", http.MethodPost, "/internal/members/{node}/remove", 0, (*Server).removeMember},
	}
}
