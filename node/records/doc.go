// Package records is a node's cache of records as they are answered: rendered for
// one audience, ready to be written.
//
// An entry's key is the life of the tenant's file (package cellfsm), the kind and
// number of the record, and the audience; its version is part of the entry. What is
// found is current:
//   - apply forgets what a command changes before anybody can see the change
//     (Changed), for all audiences;
//   - a fill is accepted only if nothing in the file has changed since the sequence
//     at which its row was read, which is checked in one step with the insertion
//     (Fill), so a slow reader does not put an old row back;
//   - a file that takes another's place begins a new life, and so has other keys.
//
// Whoever asks has been admitted to the tenant for this very request: by the fence
// against the file's control row, and by the role that chose the audience. Nothing
// is remembered about a record that is not there.
//
// The cache is bounded in bytes, what an entry takes beside its body included, and
// drops what is least likely to be asked for again.
//
// It starts no goroutines; its locks are those of the cache underneath, held for a
// map access.
package records
