package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// claims is a Context as it stands in a token.
type claims struct {
	Tenant   string `json:"tid"`
	UID      string `json:"uid"`
	Role     string `json:"role,omitempty"`
	Revision uint64 `json:"rev,omitempty"`
	Epoch    uint64 `json:"epo"`
	Act      string `json:"act"`
	jwt.RegisteredClaims
}

// Signer mints contexts in the name of one gateway.
type Signer struct {
	gateway string
	kid     string
	key     ed25519.PrivateKey
	now     func() time.Time
	tokens  *recent[Context, signed]
}

type signed struct {
	token string
	until time.Time // handed out again before this
}

// NewSigner makes a signer for the gateway of that name.
func NewSigner(gateway string, key ed25519.PrivateKey, now func() time.Time) (*Signer, error) {
	if gateway == "" || len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("a signer needs the gateway's name and an ed25519 key")
	}
	public, _ := key.Public().(ed25519.PublicKey)
	return &Signer{gateway: gateway, kid: Key{Gateway: gateway, Public: public}.ID(), key: key, now: now,
		tokens: newRecent[Context, signed](cached)}, nil
}

// Key is the public half, for the cells.
func (s *Signer) Key() Key {
	public, _ := s.key.Public().(ed25519.PublicKey)
	return Key{Gateway: s.gateway, Public: public}
}

// Sign returns a token for c that is good for at least Lifetime minus a few
// seconds. An incomplete context is a mistake of the caller and is not signed.
func (s *Signer) Sign(c Context) (string, error) {
	c.Gateway = s.gateway
	now := s.now()
	if t, ok := s.tokens.get(c); ok && now.Before(t.until) && now.After(t.until.Add(-2*reuse)) {
		return t.token, nil
	}
	if !c.complete() {
		return "", fmt.Errorf("context for tenant %q in cell %q is incomplete", c.Tenant, c.Cell)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		Tenant: string(c.Tenant), UID: string(c.UID), Role: c.Role.String(), Revision: uint64(c.Revision), Epoch: uint64(c.Epoch), Act: string(c.Act),
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: s.gateway, Subject: string(c.Actor), Audience: jwt.ClaimStrings{audience(c.Cell, c.CellKey)},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
		},
	})
	t.Header["kid"] = s.kid
	token, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign context: %w", err)
	}
	s.tokens.put(c, signed{token: token, until: now.Add(reuse)})
	return token, nil
}
