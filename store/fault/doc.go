// Package fault is the vocabulary of failure: a closed set of kinds and one
// error type that every layer speaks, so that a refusal made inside a
// replicated transaction reaches the client as the same problem it was.
//
// It is a leaf and imports nothing of the project. An error that is not a
// *Error, wherever it turns up, means Internal.
package fault
