// Package directory is one gateway's replica of the directory: users,
// credentials, tenants, memberships, placements, cells and the audit.
package directory
