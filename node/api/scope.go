package api

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"celld/gateway/identity"
	"celld/raftfsm"
	"celld/store/fault"
	"celld/store/tenant"
)

// ErrStalePolicy refuses a context whose policy revision is older than one that
// this node has already seen for the same actor in the same tenant: the gateway
// that signed it is behind.
var ErrStalePolicy = fault.New(fault.Unavailable, "stale-policy", "the rights under which this was asked are out of date; retry").After(time.Second)

// context verifies the request's signed context.
func (s *Server) context(r *http.Request) (identity.Context, error) {
	verifier := s.cfg.Verifier()
	if verifier == nil {
		return identity.Context{}, raftfsm.ErrNotLeader // the cell is not ready for anybody yet
	}
	given := r.Header[identity.Header]
	if len(given) > 1 {
		return identity.Context{}, identity.ErrBadContext.Because(errors.New("more than one"))
	}
	token := ""
	if len(given) == 1 {
		token = given[0]
	}
	return verifier.Verify(token)
}

// scope is the authority of a member's request for the tenant that its path
// names.
func (s *Server) scope(c identity.Context, path string) (tenant.Scope, error) {
	scope, err := c.Scope()
	if err != nil {
		return tenant.Scope{}, identity.ErrBadContext.Because(err)
	}
	if string(scope.Tenant) != path {
		return tenant.Scope{}, identity.ErrBadContext.Because(errors.New("the path names another tenant"))
	}
	if !s.revisions.admit(scope) {
		return tenant.Scope{}, ErrStalePolicy
	}
	return scope, nil
}

// keptRevisions bounds one generation of revisions.
const keptRevisions = 1 << 15

type member struct {
	uid   tenant.UID
	actor tenant.UserID
}

// revisions remembers the highest policy revision of the members seen lately, in
// two generations: when the young one is full it becomes the old one, and what
// is used again is young again.
type revisions struct {
	mu         sync.Mutex
	young, old map[member]tenant.Revision
}

// admit refuses a revision below the highest seen, and remembers it otherwise.
func (v *revisions) admit(s tenant.Scope) bool {
	m := member{s.UID, s.Actor}
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, isYoung := v.young[m]
	if !isYoung {
		seen = v.old[m]
	}
	if s.Revision < seen {
		return false
	}
	if isYoung && s.Revision == seen {
		return true
	}
	if len(v.young) >= keptRevisions || v.young == nil {
		v.old, v.young = v.young, make(map[member]tenant.Revision)
	}
	v.young[m] = s.Revision
	return true
}
