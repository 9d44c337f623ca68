package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"celld/store/fault"
	"celld/store/tenant"
)

// maxToken bounds a token's length; one that Sign makes has some 600 bytes.
const maxToken = 4 << 10

// ErrNoContext and ErrBadContext are a cell's refusals of a request whose caller
// it does not know. What exactly is wrong is the cause, for the log.
var (
	ErrNoContext  = &fault.Error{Kind: fault.Unauthenticated, Slug: "context-missing", Detail: "a cell serves requests with a signed context only"}
	ErrBadContext = &fault.Error{Kind: fault.Unauthenticated, Slug: "context-invalid", Detail: "the signed context was refused"}
)

// Verifier checks contexts for one cell.
type Verifier struct {
	cell   tenant.CellName
	key    tenant.CellKey
	keys   map[string]Key
	now    func() time.Time
	parser *jwt.Parser
	known  *recent[string, verified]
}

type verified struct {
	context Context
	issued  time.Time
	expires time.Time
}

// NewVerifier makes a verifier that accepts contexts for the cell of that name
// and key, signed by one of keys.
func NewVerifier(cell tenant.CellName, key tenant.CellKey, keys []Key, now func() time.Time) (*Verifier, error) {
	if cell == "" || key == "" {
		return nil, errors.New("a verifier needs the cell's name and key")
	}
	v := &Verifier{cell: cell, key: key, keys: make(map[string]Key, len(keys)), now: now, known: newRecent[string, verified](cached)}
	for _, k := range keys {
		if k.Gateway == "" || len(k.Public) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("public key of gateway %q: want %d bytes, have %d", k.Gateway, ed25519.PublicKeySize, len(k.Public))
		}
		v.keys[k.ID()] = k
	}
	v.parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation()) // fresh does it, for tokens from the cache too
	return v, nil
}

// Verify returns what token says, or ErrNoContext or ErrBadContext.
func (v *Verifier) Verify(token string) (Context, error) {
	if v == nil || token == "" {
		return Context{}, ErrNoContext
	}
	if len(token) > maxToken {
		return Context{}, ErrBadContext.Because(errors.New("too long"))
	}
	known, ok := v.known.get(token)
	if !ok {
		var err error
		if known, err = v.parse(token); err != nil {
			return Context{}, ErrBadContext.Because(err)
		}
	}
	if err := v.fresh(known); err != nil {
		return Context{}, ErrBadContext.Because(err)
	}
	if !ok {
		v.known.put(strings.Clone(token), known) // it may be a part of something large
	}
	return known.context, nil
}

// fresh checks the times, with the leeway.
func (v *Verifier) fresh(t verified) error {
	now := v.now()
	if !now.Before(t.expires.Add(Leeway)) {
		return fmt.Errorf("expired at %s", t.expires.UTC().Format(time.RFC3339))
	}
	if now.Add(Leeway).Before(t.issued) {
		return fmt.Errorf("issued at %s, which is ahead of this clock", t.issued.UTC().Format(time.RFC3339))
	}
	return nil
}

// signed checks a token's signature, reads its claims into c and returns the key.
func (v *Verifier) signed(token string, c jwt.Claims) (by Key, err error) {
	_, err = v.parser.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		k, ok := v.keys[kid]
		if !ok {
			return nil, errors.New("signed with an unknown key")
		}
		by = k
		return k.Public, nil
	})
	return by, err
}

func (v *Verifier) parse(token string) (verified, error) {
	var c claims
	by, err := v.signed(token, &c)
	if err != nil {
		return verified{}, err
	}
	if c.Issuer != by.Gateway {
		return verified{}, fmt.Errorf("issued by %q with the key of %q", c.Issuer, by.Gateway)
	}
	if want := audience(v.cell, v.key); len(c.Audience) != 1 || c.Audience[0] != want {
		return verified{}, fmt.Errorf("meant for %q, this is %q", c.Audience, want)
	}
	if c.IssuedAt == nil || c.ExpiresAt == nil || c.ExpiresAt.Sub(c.IssuedAt.Time) > Lifetime {
		return verified{}, errors.New("lives too long, or has no times")
	}
	out := Context{Gateway: c.Issuer, Cell: v.cell, CellKey: v.key, Act: Act(c.Act), Actor: tenant.UserID(c.Subject),
		Tenant: tenant.ID(c.Tenant), UID: tenant.UID(c.UID), Revision: tenant.Revision(c.Revision), Epoch: tenant.Epoch(c.Epoch)}
	if c.Role != "" {
		if out.Role, err = tenant.ParseRole(c.Role); err != nil {
			return verified{}, err
		}
	}
	if !out.complete() {
		return verified{}, errors.New("incomplete")
	}
	return verified{context: out, issued: c.IssuedAt.Time, expires: c.ExpiresAt.Time}, nil
}
