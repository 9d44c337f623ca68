// Package tenant is the vocabulary of tenancy: ids, epochs, states, roles and
// the Scope in which a request acts. Each noun has a type of its own, so that a
// public id cannot be passed where an internal uid is meant.
//
// It is a leaf: it imports package fault alone, keeps no state and reads
// neither clock nor environment.
package tenant
