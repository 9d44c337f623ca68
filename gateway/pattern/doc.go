// Package pattern matches the paths of a route table segment by segment, as a
// matcher of gorilla/mux: /tenants/{tenant}/invoices has two fixed segments and a
// variable, and a variable is any segment that is not empty.
//
// mux's own path templates say the same with a regular expression each, which a
// request pays for at every route that it is held against. A request of this API
// is told from most others by the number of its segments.
//
// It keeps no state, starts no goroutines and has no locks.
package pattern
