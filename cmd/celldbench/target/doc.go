// Package target is the platform that is measured and the tenants that were made
// on it: it starts the platform, makes tenants as an operator and their content as
// their owners, lays out requests, counts what processes use, and at the end holds
// what the platform keeps against what it acknowledged.
//
// # On disk
//
// The platform's data lies below Options.Dir, and profiles below
// Options.Profiles. The caller removes them.
//
// # Goroutines and locks
//
// A Watch and a profiled stretch have goroutines of their own, which end and are
// waited for when they are ended. Tenants may be used by many callers at once;
// Readers, Writers and the like belong to one caller each.
package target
