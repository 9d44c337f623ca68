package directory

import (
	"net"
	"sort"
	"strings"
	"unicode/utf8"

	"celld/raftfsm/dirfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

func invalid(field, detail string) error {
	return fault.New(fault.Invalid, "invalid-field", "%s %s", field, detail).With("field", field)
}

// Bounds of the directory's fields, in bytes where nothing else is said.
const (
	maxName      = 200 // characters
	maxEmail     = 254
	minPassword  = 8
	maxPassword  = 1024
	maxRegion    = 32
	maxAddress   = 260
	maxNodes     = 9
	maxAuditText = 1000
	maxCapacity  = 1_000_000
)

func checkText(field, s string, most int) error {
	if !utf8.ValidString(s) {
		return invalid(field, "must be valid UTF-8")
	}
	if n := utf8.RuneCountInString(s); n > most {
		return fault.New(fault.Invalid, "invalid-field", "%s may have %d characters", field, most).With("field", field)
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r < 0xa0 {
			return invalid(field, "must not have control characters")
		}
	}
	return nil
}

func checkName(field, s string) error {
	if strings.TrimSpace(s) == "" {
		return invalid(field, "must not be empty")
	}
	return checkText(field, s, maxName)
}

// checkEmail asks for the form only. Addresses are ASCII: they are unique
// ignoring case, and case beyond ASCII depends on who compares.
func checkEmail(s string) error {
	local, domain, found := strings.Cut(s, "@")
	if !found || local == "" || domain == "" || strings.Contains(domain, "@") || len(s) > maxEmail {
		return invalid("email", "must be an e-mail address of at most 254 characters")
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return invalid("email", "must be an e-mail address in printable ASCII")
		}
	}
	return nil
}

func checkPassword(s string) error {
	if len(s) < minPassword || len(s) > maxPassword || !utf8.ValidString(s) {
		return invalid("password", "must have 8 to 1024 bytes of UTF-8")
	}
	return nil
}

// checkLabel is for regions: lower-case letters, digits and hyphens.
func checkLabel(field, s string) error {
	if s == "" || len(s) > maxRegion {
		return invalid(field, "must have 1 to 32 lower-case letters, digits or hyphens")
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return invalid(field, "must have 1 to 32 lower-case letters, digits or hyphens")
		}
	}
	return nil
}

func checkTier(s string) error {
	if s != "pooled" && s != "dedicated" {
		return invalid("tier", `must be "pooled" or "dedicated"`)
	}
	return nil
}

func checkUser(field string, id tenant.UserID) error {
	if !tenant.ValidID(string(id)) {
		return invalid(field, "must be a letter and up to 31 letters, digits or hyphens")
	}
	return nil
}

func checkCell(in Cell) (dirfsm.PutCell, error) {
	none := dirfsm.PutCell{}
	if !tenant.ValidID(string(in.Name)) {
		return none, invalid("name", "must be a letter and up to 31 letters, digits or hyphens")
	}
	if in.Key == "" || len(in.Key) > 64 {
		return none, invalid("key", "must be the cell's key")
	}
	if err := checkLabel("region", in.Region); err != nil {
		return none, err
	}
	if in.Tier == "" {
		in.Tier = defaultTier
	}
	if err := checkTier(in.Tier); err != nil {
		return none, err
	}
	if in.State == "" {
		in.State = CellActive
	}
	if in.State != CellActive && in.State != CellDraining {
		return none, invalid("state", `must be "active" or "draining"`)
	}
	if in.Capacity == 0 {
		in.Capacity = defaultCapacity
	}
	if in.Capacity < 0 || in.Capacity > maxCapacity {
		return none, invalid("capacity", "must be 1 to 1,000,000 tenants")
	}
	if len(in.Nodes) == 0 || len(in.Nodes) > maxNodes {
		return none, invalid("nodes", "must name 1 to 9 nodes")
	}
	nodes := make([]dirfsm.CellNode, 0, len(in.Nodes))
	for name, address := range in.Nodes {
		if !tenant.ValidID(name) {
			return none, invalid("nodes", "must have node names of a letter and up to 31 letters, digits or hyphens")
		}
		if _, _, err := net.SplitHostPort(address); err != nil || len(address) > maxAddress {
			return none, invalid("nodes", "must have addresses of the form host:port")
		}
		nodes = append(nodes, dirfsm.CellNode{Name: name, Address: address})
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	return dirfsm.PutCell{Name: in.Name, Key: in.Key, Region: in.Region, Tier: in.Tier,
		State: string(in.State), Capacity: int64(in.Capacity), Nodes: nodes}, nil
}

const (
	defaultTier     = "pooled"
	defaultCapacity = 10_000
)
