// Package settings is what a process of celld may be told: one typed struct for
// a gateway and one for a node, filled from flags, environment and a JSON file,
// in this order of precedence.
//
// The file holds one JSON object whose keys are the struct's; an unknown or
// repeated key is refused, so that a typing error does not become a default.
// Secrets are named by file and such a file is refused when others may read it.
//
// It starts no goroutines and keeps no state.
package settings
