package identity

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"celld/store/fault"
	"celld/store/tenant"
)

// decisionAudience is whom a decision is for: every cell. No context has it.
const decisionAudience = "move-decision"

const (
	commitWord = "commit"
	abortWord  = "abort"
)

// ErrBadDecision is a cell's refusal of a decision that no gateway has signed. What
// exactly is wrong is the cause, for the log.
var ErrBadDecision = &fault.Error{Kind: fault.Unauthenticated, Slug: "decision-invalid", Detail: "the decision about the move was refused: it must be signed by one of the gateways' keys"}

// Decision is what the directory's log has decided about a move, once and for ever.
type Decision struct {
	Move   tenant.MoveID
	Commit bool   // false: abort
	Index  uint64 // the directory's log entry that decided
}

func (d Decision) word() string {
	if d.Commit {
		return commitWord
	}
	return abortWord
}

// decisionClaims is a Decision as it stands in a token.
type decisionClaims struct {
	Move     string `json:"mov"`
	Decision string `json:"dec"`
	Index    uint64 `json:"idx"`
	jwt.RegisteredClaims
}

// SignDecision returns a token for d that never expires: what was decided stays
// so, however late a cell hears of it. It is made from what the directory has
// logged and from nothing else.
func (s *Signer) SignDecision(d Decision) (string, error) {
	if !d.Move.Valid() || d.Index == 0 {
		return "", fmt.Errorf("decision about move %q at index %d is incomplete", d.Move, d.Index)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, decisionClaims{
		Move: string(d.Move), Decision: d.word(), Index: d.Index,
		RegisteredClaims: jwt.RegisteredClaims{Issuer: s.gateway, Audience: jwt.ClaimStrings{decisionAudience}},
	})
	t.Header["kid"] = s.kid
	token, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign decision: %w", err)
	}
	return token, nil
}

// VerifyDecision returns what token says, or ErrBadDecision. It is called before a
// command that carries the decision is proposed; apply trusts the log.
func (v *Verifier) VerifyDecision(token string) (Decision, error) {
	if v == nil || token == "" {
		return Decision{}, ErrBadDecision.Because(errors.New("there is none"))
	}
	if len(token) > maxToken {
		return Decision{}, ErrBadDecision.Because(errors.New("too long"))
	}
	d, err := v.parseDecision(token)
	if err != nil {
		return Decision{}, ErrBadDecision.Because(err)
	}
	return d, nil
}

func (v *Verifier) parseDecision(token string) (Decision, error) {
	var c decisionClaims
	by, err := v.signed(token, &c)
	if err != nil {
		return Decision{}, err
	}
	if c.Issuer != by.Gateway {
		return Decision{}, fmt.Errorf("issued by %q with the key of %q", c.Issuer, by.Gateway)
	}
	if len(c.Audience) != 1 || c.Audience[0] != decisionAudience {
		return Decision{}, fmt.Errorf("meant for %q, not a decision", c.Audience)
	}
	d := Decision{Move: tenant.MoveID(c.Move), Commit: c.Decision == commitWord, Index: c.Index}
	if !d.Move.Valid() || d.Index == 0 || c.Decision != d.word() {
		return Decision{}, fmt.Errorf("it says %q of move %q at index %d", c.Decision, c.Move, c.Index)
	}
	return d, nil
}
