package tenant

import "celld/store/fault"

// Role is what a member may do in a tenant. Its zero value is no role at all.
type Role uint8

const (
	Viewer  Role = iota + 1 // reads
	Member                  // also writes customers and invoices
	Finance                 // also sees and writes an invoice's internal part
	Admin                   // also manages members and invites
	Owner                   // also manages owners; a tenant always keeps one
)

var roleNames = [...]string{"", "viewer", "member", "finance", "admin", "owner"}

// String is the role's name in the API.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return ""
}

// ParseRole reads a role's name, matched exactly.
func ParseRole(s string) (Role, error) {
	for i, name := range roleNames {
		if i > 0 && s == name {
			return Role(i), nil
		}
	}
	return 0, fault.New(fault.Invalid, "invalid-role", "role is one of viewer, member, finance, admin, owner")
}

// Action is something that a route does and a role may or may not.
type Action uint8

const (
	ReadTenant     Action = iota + 1 // the tenant itself, its members
	ReadRecords                      // customers and invoices
	WriteRecords                     // create and change customers and invoices
	ReadInternal                     // an invoice's internal part
	WriteInternal                    // change it
	ManageMembers                    // members other than owners, and invites
	ManageOwners                     // give and take the role owner
	LeaveTenant                      // end one's own membership
	ProvisionStore                   // a gateway's own act: create a tenant's file in a cell
	actions
)

var actionNames = [actions]string{"", "read-tenant", "read-records", "write-records", "read-internal",
	"write-internal", "manage-members", "manage-owners", "leave-tenant", "provision-store"}

// String is the action's name in logs.
func (a Action) String() string {
	if a < actions {
		return actionNames[a]
	}
	return ""
}

// least is the lowest role that may do an action; 0 is no member's right at all.
var least = [actions]Role{
	ReadTenant: Viewer, ReadRecords: Viewer, LeaveTenant: Viewer, WriteRecords: Member,
	ReadInternal: Finance, WriteInternal: Finance, ManageMembers: Admin, ManageOwners: Owner,
}

// Can reports whether the role includes the right to a.
func (r Role) Can(a Action) bool {
	return r >= Viewer && r <= Owner && a > 0 && a < actions && least[a] != 0 && r >= least[a]
}
