package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"celld/store/fault"
	"celld/store/tenant"
)

const move = tenant.MoveID("abcdefghijklmnopqrstuvwxy5")

func decided(commit bool) Decision { return Decision{Move: move, Commit: commit, Index: 42} }

func TestDecisionsNeverExpire(t *testing.T) {
	p := newPair(t)
	for _, commit := range []bool{true, false} {
		token, err := p.signer.SignDecision(decided(commit))
		if err != nil {
			t.Fatal(err)
		}
		for _, later := range []time.Duration{0, -24 * time.Hour, 20 * 365 * 24 * time.Hour} {
			p.at = start.Add(later)
			if got, err := p.verifier.VerifyDecision(token); err != nil || got != decided(commit) {
				t.Errorf("after %s: %+v, %v", later, got, err)
			}
		}
	}
	// Another cell, with the same gateways.
	other, err := NewVerifier("C5", "k2", []Key{p.signer.Key()}, p.now)
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.signer.SignDecision(decided(true))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := other.VerifyDecision(token); err != nil || got != decided(true) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIncompleteDecisionsAreNotSigned(t *testing.T) {
	p := newPair(t)
	for name, d := range map[string]Decision{"no move": {Commit: true, Index: 1}, "bad move": {Move: "x", Index: 1}, "not logged": {Move: move}} {
		if token, err := p.signer.SignDecision(d); err == nil {
			t.Errorf("%s: %s", name, token)
		}
	}
}

func TestDecisionRefused(t *testing.T) {
	p := newPair(t)
	sign := func(key byte, gateway string, change func(*decisionClaims)) string {
		c := decisionClaims{Move: string(move), Decision: commitWord, Index: 42,
			RegisteredClaims: jwt.RegisteredClaims{Issuer: gateway, Audience: jwt.ClaimStrings{decisionAudience}}}
		change(&c)
		s, err := NewSigner("G1", keyOf(t, key), p.now)
		if err != nil {
			t.Fatal(err)
		}
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
		token.Header["kid"] = s.kid
		text, err := token.SignedString(s.key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	same := func(*decisionClaims) {}
	if _, err := p.verifier.VerifyDecision(sign(0, "G1", same)); err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"none":             "",
		"no token":         "x.y.z",
		"unknown key":      sign(1, "G1", same),
		"another's name":   sign(0, "G2", same),
		"a context":        p.sign(t, member()),
		"for one cell":     sign(0, "G1", func(c *decisionClaims) { c.Audience = jwt.ClaimStrings{"C2/k1"} }),
		"for two":          sign(0, "G1", func(c *decisionClaims) { c.Audience = append(c.Audience, "C2/k1") }),
		"no move":          sign(0, "G1", func(c *decisionClaims) { c.Move = "" }),
		"another word":     sign(0, "G1", func(c *decisionClaims) { c.Decision = "Commit" }),
		"no word":          sign(0, "G1", func(c *decisionClaims) { c.Decision = "" }),
		"not in the log":   sign(0, "G1", func(c *decisionClaims) { c.Index = 0 }),
		"longer than ever": sign(0, "G1", func(c *decisionClaims) { c.ID = string(make([]byte, maxToken)) }),
	} {
		if d, err := p.verifier.VerifyDecision(token); !errors.Is(err, ErrBadDecision) || fault.Of(err) != fault.Unauthenticated || d != (Decision{}) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if _, err := (*Verifier)(nil).VerifyDecision(sign(0, "G1", same)); !errors.Is(err, ErrBadDecision) {
		t.Errorf("a cell without its key: %v", err)
	}
	decision, err := p.signer.SignDecision(decided(true))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := p.verifier.Verify(decision); !errors.Is(err, ErrBadContext) {
		t.Errorf("a decision passes as a context: %+v, %v", c, err)
	}
	for i := range decision {
		b := []byte(decision)
		b[i] ^= 1
		if _, err := p.verifier.VerifyDecision(string(b)); err == nil {
			t.Fatalf("character %d changed, and accepted", i)
		}
	}
}
