package identity

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/golang-jwt/jwt/v5"

	"celld/store/fault"
	"celld/store/tenant"
)

const uid = tenant.UID("abcdefghijklmnopqrstuvwxy4")

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests set.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func keyOf(t testing.TB, seed byte) ed25519.PrivateKey {
	t.Helper()
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed)), ed25519.SeedSize)))
}

func member() Context {
	return Context{Cell: "C2", CellKey: "k1", Act: ByMember, Actor: "U7", Tenant: "T7", UID: uid, Role: tenant.Finance, Revision: 3, Epoch: 2}
}

type pair struct {
	*clock
	signer   *Signer
	verifier *Verifier
}

func newPair(t testing.TB) pair {
	t.Helper()
	c := &clock{at: start}
	s, err := NewSigner("G1", keyOf(t, 0), c.now)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier("C2", "k1", []Key{s.Key()}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return pair{c, s, v}
}

func (p pair) sign(t testing.TB, c Context) string {
	t.Helper()
	token, err := p.signer.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestRoundTrip(t *testing.T) {
	p := newPair(t)
	provision := Context{Cell: "C2", CellKey: "k1", Act: ByProvision, Actor: "U7", Tenant: "T7", UID: uid, Epoch: 1}
	operator := Context{Cell: "C2", CellKey: "k1", Act: ByOperator, Actor: "gateway:G1"}
	for _, in := range []Context{member(), provision, operator} {
		out, err := p.verifier.Verify(p.sign(t, in))
		in.Gateway = "G1"
		if err != nil || out != in {
			t.Fatalf("got %+v, %v", out, err)
		}
		scope, err := out.Scope()
		if (err == nil) != (in.Act == ByMember) {
			t.Fatalf("scope of %s: %v", in.Act, err)
		}
		if in.Act == ByMember && scope != (tenant.Scope{Tenant: "T7", UID: uid, Epoch: 2, Actor: "U7", Role: tenant.Finance, Revision: 3}) {
			t.Fatalf("scope %+v", scope)
		}
	}
}

func TestIncompleteIsNotSigned(t *testing.T) {
	p := newPair(t)
	for name, spoil := range map[string]func(*Context){
		"cell": func(c *Context) { c.Cell = "" }, "cell key": func(c *Context) { c.CellKey = "" }, "act": func(c *Context) { c.Act = "" },
		"actor": func(c *Context) { c.Actor = "" }, "tenant": func(c *Context) { c.Tenant = "" }, "uid": func(c *Context) { c.UID = "../../etc" },
		"role": func(c *Context) { c.Role = 0 }, "epoch": func(c *Context) { c.Epoch = 0 }, "provision with a role": func(c *Context) { c.Act = ByProvision },
		"an operator in a tenant": func(c *Context) { c.Act = ByOperator },
	} {
		c := member()
		spoil(&c)
		if _, err := p.signer.Sign(c); err == nil {
			t.Errorf("signed without %s", name)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		ok    bool
	}{
		{-Leeway - time.Second, false}, {-Leeway, true}, {0, true}, {Lifetime, true},
		{Lifetime + Leeway - time.Second, true}, {Lifetime + Leeway, false}, {time.Hour, false},
	} {
		for _, warm := range []bool{false, true} {
			p := newPair(t)
			token := p.sign(t, member())
			if warm { // a token from the cache expires like any other
				if _, err := p.verifier.Verify(token); err != nil {
					t.Fatal(err)
				}
			}
			p.at = start.Add(c.after)
			if _, err := p.verifier.Verify(token); (err == nil) != c.ok {
				t.Errorf("after %s, warm %t: %v", c.after, warm, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	p := newPair(t)
	good := p.sign(t, member())
	elsewhere := func(cell tenant.CellName, key tenant.CellKey) string {
		c := member()
		c.Cell, c.CellKey = cell, key
		return p.sign(t, c)
	}
	raw := func(method jwt.SigningMethod, key any, kid any, change func(*claims)) string {
		c := claims{Tenant: "T7", UID: string(uid), Role: "owner", Revision: 3, Epoch: 2, Act: "member", RegisteredClaims: jwt.RegisteredClaims{
			Issuer: "G1", Subject: "U7", Audience: jwt.ClaimStrings{"C2/k1"}, IssuedAt: jwt.NewNumericDate(start), ExpiresAt: jwt.NewNumericDate(start.Add(Lifetime))}}
		if change != nil {
			change(&c)
		}
		token := jwt.NewWithClaims(method, c)
		token.Header["kid"] = kid
		s, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kid, key := p.signer.Key().ID(), keyOf(t, 0)
	if _, err := p.verifier.Verify(raw(jwt.SigningMethodEdDSA, key, kid, nil)); err != nil {
		t.Fatalf("the base of the table is refused: %v", err)
	}
	for name, token := range map[string]string{
		"another cell":           elsewhere("C5", "k1"),
		"another key of a cell":  elsewhere("C2", "k0"),
		"another key":            raw(jwt.SigningMethodEdDSA, keyOf(t, 1), kid, nil),
		"unknown kid":            raw(jwt.SigningMethodEdDSA, key, "G9.00", nil),
		"kid of another type":    raw(jwt.SigningMethodEdDSA, key, 7, nil),
		"alg none":               raw(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, nil),
		"hmac by the public key": raw(jwt.SigningMethodHS256, []byte(p.signer.Key().Public), kid, nil),
		"another issuer":         raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Issuer = "G2" }),
		"two audiences":          raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Audience = jwt.ClaimStrings{"C2/k1", "C5/k2"} }),
		"no audience":            raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Audience = nil }),
		"no expiry":              raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.ExpiresAt = nil }),
		"no issue time":          raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.IssuedAt = nil }),
		"a long life":            raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.ExpiresAt = jwt.NewNumericDate(start.Add(time.Hour)) }),
		"an unknown role":        raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Role = "god" }),
		"no tenant":              raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Tenant = "" }),
		"an unknown act":         raw(jwt.SigningMethodEdDSA, key, kid, func(c *claims) { c.Act = "root" }),
		"cut":                    good[:len(good)-2],
		"too long":               good + strings.Repeat("a", maxToken),
		"not a token":            "hello",
	} {
		if _, err := p.verifier.Verify(token); !errors.Is(err, ErrBadContext) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.verifier.Verify(""); !errors.Is(err, ErrNoContext) {
		t.Errorf("empty: %v", err)
	}
	if _, err := (*Verifier)(nil).Verify(good); !errors.Is(err, ErrNoContext) {
		t.Errorf("no verifier: %v", err)
	}
	if fault.Of(ErrBadContext) != fault.Unauthenticated {
		t.Error("a refusal is not a 401")
	}
}

func TestEveryFlippedCharacterIsRefused(t *testing.T) {
	p := newPair(t)
	good := p.sign(t, member())
	for i := range len(good) {
		c := byte('A')
		if good[i] == c {
			c = 'B'
		}
		if _, err := p.verifier.Verify(good[:i] + string(c) + good[i+1:]); err == nil {
			t.Fatalf("character %d may be changed", i)
		}
	}
}

func TestSignerReusesForSeconds(t *testing.T) {
	p := newPair(t)
	first := p.sign(t, member())
	p.at = start.Add(reuse - time.Millisecond)
	if p.sign(t, member()) != first {
		t.Error("signed again at once")
	}
	p.at = start.Add(reuse)
	if p.sign(t, member()) == first {
		t.Error("reused for too long")
	}
	p.at = start.Add(-time.Hour)
	if p.sign(t, member()) == first {
		t.Error("reused after the clock was set back")
	}
	p.at = start
	for name, change := range map[string]func(*Context){
		"revision": func(c *Context) { c.Revision++ }, "epoch": func(c *Context) { c.Epoch++ }, "role": func(c *Context) { c.Role = tenant.Viewer },
		"tenant": func(c *Context) { c.Tenant = "T8" }, "actor": func(c *Context) { c.Actor = "U8" }, "cell key": func(c *Context) { c.CellKey = "k2" },
	} {
		c := member()
		change(&c)
		if p.sign(t, c) == first {
			t.Errorf("one token for another %s", name)
		}
	}
}

func TestCachesAreBounded(t *testing.T) {
	c := newRecent[int, int](100)
	for i := range 1000 {
		c.put(i, i)
		if v, ok := c.get(0); ok && v != 0 {
			t.Fatal("another's value")
		}
		if c.len() > 100 {
			t.Fatalf("%d entries", c.len())
		}
	}
	if _, ok := c.get(0); !ok {
		t.Error("what is used all the time was forgotten")
	}
	if _, ok := c.get(500); ok {
		t.Error("what was not used is still there")
	}
}

// TestTokensArePartOfMore: a token that came as a part of a request's head does not
// keep the rest of it in memory.
func TestTokensArePartOfMore(t *testing.T) {
	p := newPair(t)
	token := p.sign(t, member())
	head := token + strings.Repeat("x", 1<<16)
	if _, err := p.verifier.Verify(head[:len(token)]); err != nil {
		t.Fatal(err)
	}
	for kept := range p.verifier.known.young {
		if unsafe.StringData(kept) == unsafe.StringData(head) {
			t.Error("the whole head is kept")
		}
	}
}

func TestBadKeys(t *testing.T) {
	if _, err := NewSigner("", keyOf(t, 0), time.Now); err == nil {
		t.Error("signer without a name")
	}
	if _, err := NewSigner("G1", nil, time.Now); err == nil {
		t.Error("signer without a key")
	}
	if _, err := NewVerifier("C2", "", nil, time.Now); err == nil {
		t.Error("verifier without a cell key")
	}
	if _, err := NewVerifier("C2", "k", []Key{{Gateway: "G1", Public: []byte("short")}}, time.Now); err == nil {
		t.Error("verifier with half a key")
	}
}

func FuzzVerify(f *testing.F) {
	p := newPair(f)
	f.Add(p.sign(f, member()))
	f.Add("a.b.c")
	signed := p.sign(f, member())
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := p.verifier.Verify(token); err == nil && token != signed {
			t.Fatalf("accepted %q", token)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	p := newPair(b)
	b.ReportAllocs()
	for b.Loop() {
		p.sign(b, member())
	}
}

func BenchmarkVerify(b *testing.B) {
	p := newPair(b)
	token := p.sign(b, member())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.verifier.Verify(token); err != nil {
			b.Fatal(err)
		}
	}
}
