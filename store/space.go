package store

// FileState is one file of a group and how far it is.
type FileState struct {
	_      struct{} `cbor:",toarray"`
	Target string   // a tenant's uid; "" is the group's own file
	Epoch  uint64
	Folder string // below the tenants' folder; "" for the group's own file
	Index  uint64 // applied index
	Absent bool   // the replica that lists it lacks it, and knows no index
}
