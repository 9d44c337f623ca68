package dirfsm

import (
	"strings"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Limits that apply checks.
const (
	MaxTokens   = 100  // API tokens of a user
	MaxSessions = 1000 // open sessions of a user; one more closes the oldest
	MaxTenants  = 1000 // tenants of a user
	MaxMembers  = 1000 // members of a tenant
	MaxInvites  = 1000 // open invites of a tenant
)

// Secret is a credential as the log may see it: its public id and the SHA-256 of
// its text.
type Secret struct {
	_    struct{} `cbor:",toarray"`
	ID   string
	Hash []byte
}

// CreateUser makes a user, and an API token for it where Token is given.
type CreateUser struct {
	_        struct{} `cbor:",toarray"`
	ID       tenant.UserID
	Email    string
	Name     string
	Password string // argon2id in PHC form; "" for none
	Token    *Secret
}

// UserCreated is CreateUser's result.
type UserCreated struct {
	_       struct{} `cbor:",toarray"`
	ID      tenant.UserID
	TokenID string
}

func createUser(tx *store.Tx, c *raftfsm.Command, b CreateUser) (UserCreated, error) {
	none := UserCreated{}
	if err := needOperator(c); err != nil {
		return none, err
	}
	fold, mail := b.ID.Fold(), strings.ToLower(b.Email)
	if n, err := count(tx, "SELECT count(*) FROM user WHERE user_fold = ?", fold); err != nil {
		return none, err
	} else if n > 0 {
		return none, fault.New(fault.Conflict, "user-id-taken", "the user id is taken, perhaps in other case; choose another")
	}
	if n, err := count(tx, "SELECT count(*) FROM user WHERE email_fold = ?", mail); err != nil {
		return none, err
	} else if n > 0 {
		return none, fault.New(fault.Conflict, "email-taken", "another user has this e-mail address")
	}
	_, err := tx.Exec(`INSERT INTO user (user_id, user_fold, email, email_fold, name, password, password_version, created_at)
		VALUES (?, ?, ?, ?, ?, ?, 1, ?)`, string(b.ID), fold, b.Email, mail, b.Name, b.Password, tx.Now)
	if err != nil {
		return none, err
	}
	made := UserCreated{ID: b.ID}
	if b.Token != nil {
		made.TokenID = b.Token.ID
		if err := insertToken(tx, b.ID, *b.Token, "first"); err != nil {
			return none, err
		}
	}
	return made, audit(tx, c, event{action: "create-user", subject: string(b.ID)})
}

func insertToken(tx *store.Tx, user tenant.UserID, s Secret, name string) error {
	_, err := tx.Exec("INSERT INTO token (token_id, user_id, hash, name, created_at) VALUES (?, ?, ?, ?, ?)",
		s.ID, string(user), s.Hash, name, tx.Now)
	return taken(err)
}

// taken turns a collision of random values, which only a broken proposer can
// produce, into a refusal.
func taken(err error) error {
	if err != nil && store.IsUnique(err) {
		return fault.New(fault.Conflict, "id-taken", "the generated id is taken; retry")
	}
	return err
}

// SetPassword replaces a user's password and closes the user's sessions.
type SetPassword struct {
	_        struct{} `cbor:",toarray"`
	User     tenant.UserID
	Password string
}

func (h handlers) setPassword(tx *store.Tx, c *raftfsm.Command, b SetPassword) (Nothing, error) {
	if err := needSelf(tx, c, b.User); err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec("UPDATE user SET password = ?, password_version = password_version + 1 WHERE user_id = ?",
		b.Password, string(b.User)); err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec("DELETE FROM session WHERE user_id = ?", string(b.User)); err != nil {
		return Nothing{}, err
	}
	if err := audit(tx, c, event{action: "set-password", subject: string(b.User)}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

// CreateToken makes an API token.
type CreateToken struct {
	_     struct{} `cbor:",toarray"`
	User  tenant.UserID
	Token Secret
	Name  string
}

// TokenCreated is CreateToken's result.
type TokenCreated struct {
	_  struct{} `cbor:",toarray"`
	ID string
}

func createToken(tx *store.Tx, c *raftfsm.Command, b CreateToken) (TokenCreated, error) {
	if err := needSelf(tx, c, b.User); err != nil {
		return TokenCreated{}, err
	}
	n, err := count(tx, "SELECT count(*) FROM token WHERE user_id = ?", string(b.User))
	if err != nil {
		return TokenCreated{}, err
	}
	if n >= MaxTokens {
		return TokenCreated{}, quota("token-limit", "a user has at most %d API tokens; revoke one", MaxTokens)
	}
	if err := insertToken(tx, b.User, b.Token, b.Name); err != nil {
		return TokenCreated{}, err
	}
	return TokenCreated{ID: b.Token.ID}, audit(tx, c, event{action: "create-token", subject: string(b.User), detail: b.Token.ID})
}

func quota(slug, detail string, limit int) error {
	return fault.New(fault.Quota, slug, detail, limit).With("limit", limit)
}

// RevokeToken ends an API token.
type RevokeToken struct {
	_    struct{} `cbor:",toarray"`
	User tenant.UserID
	ID   string
}

func (h handlers) revokeToken(tx *store.Tx, c *raftfsm.Command, b RevokeToken) (Nothing, error) {
	if err := needSelf(tx, c, b.User); err != nil {
		return Nothing{}, err
	}
	n, err := tx.Exec("DELETE FROM token WHERE token_id = ? AND user_id = ?", b.ID, string(b.User))
	if err != nil {
		return Nothing{}, err
	}
	if n == 0 {
		return Nothing{}, fault.Unknown()
	}
	if err := audit(tx, c, event{action: "revoke-token", subject: string(b.User), detail: b.ID}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

// OpenSession makes a session for a user whose password was just verified. It is
// refused if the password was changed meanwhile. A repetition answers what the
// first one did.
type OpenSession struct {
	_               struct{} `cbor:",toarray"`
	User            tenant.UserID
	PasswordVersion int64
	Session         Secret
	Lifetime        int64 // microseconds
}

// SessionOpened is OpenSession's result.
type SessionOpened struct {
	_         struct{} `cbor:",toarray"`
	ExpiresAt int64
}

func (h handlers) openSession(tx *store.Tx, c *raftfsm.Command, b OpenSession) (SessionOpened, error) {
	var made SessionOpened
	if c.Actor != string(b.User) {
		return made, errForbidden
	}
	again, err := tx.One("SELECT expires_at FROM session WHERE session_id = ? AND hash = ? AND user_id = ?",
		func(r *store.Row) error { made.ExpiresAt = r.ColumnInt64(0); return nil }, b.Session.ID, b.Session.Hash, string(b.User))
	if err != nil || again {
		return made, err
	}
	valid, err := tx.One("SELECT 1 FROM user WHERE user_id = ? AND password_version = ? AND password <> ''", nil, string(b.User), b.PasswordVersion)
	if err != nil {
		return made, err
	}
	if !valid {
		return made, ErrUnauthenticated
	}
	closed, err := tx.Exec(`DELETE FROM session WHERE session_id IN
		(SELECT session_id FROM session WHERE user_id = ? ORDER BY created_at DESC, session_id DESC LIMIT -1 OFFSET ?)`,
		string(b.User), MaxSessions-1)
	if err != nil {
		return made, err
	}
	made.ExpiresAt = tx.Now + b.Lifetime
	if _, err := tx.Exec("INSERT INTO session (session_id, user_id, hash, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
		b.Session.ID, string(b.User), b.Session.Hash, tx.Now, made.ExpiresAt); err != nil {
		return made, taken(err)
	}
	if err := audit(tx, c, event{action: "open-session", subject: string(b.User), detail: b.Session.ID}); err != nil {
		return made, err
	}
	if closed > 0 {
		h.touch(tx)
	}
	return made, nil
}

// CloseSession ends a session. One that is gone already counts as closed.
type CloseSession struct {
	_    struct{} `cbor:",toarray"`
	User tenant.UserID
	ID   string
}

func (h handlers) closeSession(tx *store.Tx, c *raftfsm.Command, b CloseSession) (Nothing, error) {
	if err := needSelf(tx, c, b.User); err != nil {
		return Nothing{}, err
	}
	if _, err := tx.Exec("DELETE FROM session WHERE session_id = ? AND user_id = ?", b.ID, string(b.User)); err != nil {
		return Nothing{}, err
	}
	if err := audit(tx, c, event{action: "close-session", subject: string(b.User), detail: b.ID}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}
