// Package identity is the signed context of the hop from gateway to cell (design
// section 4.4 and 4.5): who acts, in which tenant, with which role, under which
// policy revision and epoch, for which cell.
//
// A context is a JWT signed with EdDSA:
//
//	header: alg EdDSA, typ JWT, kid <gateway>.<fingerprint of the public key>
//	iss  the gateway's name          sub  the acting user's id
//	aud  <cell name>/<cell key>      act  "member" or "provision"
//	tid  public tenant id            uid  internal tenant id
//	role name of the role            rev  policy revision
//	epo  epoch                       iat, exp  unix seconds
//
// It lives for Lifetime, and a verifier allows the clocks to differ by Leeway.
// Only the gateway has the private key; a cell that is broken into can read
// contexts, but not mint one for another cell.
//
// A decision about a move (Decision, design section 9.6) is signed with the same
// keys and verified against the same set:
//
//	iss  the gateway's name          aud  "move-decision"
//	mov  the move's id               dec  "commit" or "abort"
//	idx  the directory's log entry that decided
//
// It has no times, because what was decided stays so. Whoever changes the gateways'
// keys need not keep the old ones for it: any gateway signs a decision anew from
// what the directory's log says. Neither token passes for the other: their
// audiences differ.
//
// A Signer hands the same token out for up to reuse; a Verifier remembers what it
// has verified until the token expires. Both caches are bounded and keyed by
// everything that the token says, policy revision and epoch among it, so a change
// of authority is another key. Signer and Verifier may be used from any
// goroutine; each has one lock, held for a map access. No goroutine is started.
// Time comes from the function that was passed in.
package identity
