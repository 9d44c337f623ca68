package dirfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/tenant"
)

// event is one audit row besides its time and actor.
type event struct {
	action  string
	tenant  tenant.ID
	uid     tenant.UID
	subject string
	detail  string
}

func audit(tx *store.Tx, c *raftfsm.Command, e event) error {
	_, err := tx.Exec(`INSERT INTO audit (id, at, actor, action, tenant_id, uid, subject, detail)
		VALUES ((SELECT coalesce(max(id), 0) + 1 FROM audit), ?, ?, ?, ?, ?, ?, ?)`,
		tx.Now, c.Actor, e.action, string(e.tenant), string(e.uid), e.subject, e.detail)
	return err
}

// Nothing is the result of a command that answers nothing.
type Nothing struct {
	_ struct{} `cbor:",toarray"`
}

// Record notes an act that changed nothing in the directory, such as an
// operator's look at a tenant.
type Record struct {
	_       struct{} `cbor:",toarray"`
	Action  string
	Tenant  tenant.ID
	UID     tenant.UID
	Subject string
	Detail  string
}

func record(tx *store.Tx, c *raftfsm.Command, b Record) (Nothing, error) {
	if !isOperator(c) && !isGateway(c) {
		return Nothing{}, errForbidden
	}
	return Nothing{}, audit(tx, c, event{b.Action, b.Tenant, b.UID, b.Subject, b.Detail})
}

// Prune deletes what nobody asks for any more: sessions and invites that expired
// before a time, idempotency rows and audit rows older than one. At most Limit
// rows of each go, so that one command stays short; the newest audit row stays,
// because the next id follows from it.
type Prune struct {
	_                              struct{} `cbor:",toarray"`
	Sessions, Invites, Keys, Audit int64    // unix microseconds
	Limit                          int64
}

// Pruned is Prune's result.
type Pruned struct {
	_       struct{} `cbor:",toarray"`
	Deleted int64
	More    bool
}

func prune(tx *store.Tx, c *raftfsm.Command, b Prune) (Pruned, error) {
	if !isGateway(c) {
		return Pruned{}, errForbidden
	}
	var done Pruned
	for _, step := range []struct {
		sql    string
		before int64
	}{
		{`DELETE FROM session WHERE session_id IN
			(SELECT session_id FROM session WHERE expires_at < ? ORDER BY expires_at, session_id LIMIT ?)`, b.Sessions},
		{`DELETE FROM invite WHERE invite_id IN
			(SELECT invite_id FROM invite WHERE expires_at < ? ORDER BY expires_at, invite_id LIMIT ?)`, b.Invites},
		{`DELETE FROM idempotency WHERE (tenant_id, sequence) IN
			(SELECT tenant_id, sequence FROM idempotency WHERE created_at < ?
			 ORDER BY created_at, tenant_id, sequence LIMIT ?)`, b.Keys},
		{`DELETE FROM audit WHERE id IN
			(SELECT id FROM audit WHERE at < ? AND id < (SELECT max(id) FROM audit) ORDER BY id LIMIT ?)`, b.Audit},
	} {
		n, err := tx.Exec(step.sql, step.before, b.Limit)
		if err != nil {
			return Pruned{}, err
		}
		done.Deleted += int64(n)
		done.More = done.More || int64(n) == b.Limit
	}
	return done, nil
}
