package directory

import (
	"context"
	"strings"
	"time"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// sessionLife is how long a session lasts, used or not.
const sessionLife = 12 * time.Hour

func micros(r *store.Row, col int) time.Time { return time.UnixMicro(r.ColumnInt64(col)).UTC() }

// CreateUser makes a user; by operators. key.Hash is kept unsalted: whoever makes it
// leaves the password out, and of two passwords under one key the first counts.
func (d *Directory) CreateUser(ctx context.Context, by Actor, key *raftfsm.Key, in NewUser) (UserCreated, bool, error) {
	none := UserCreated{}
	if in.ID != "" {
		if err := checkUser("userId", in.ID); err != nil {
			return none, false, err
		}
	}
	if err := checkEmail(in.Email); err != nil {
		return none, false, err
	}
	if err := checkName("name", in.Name); err != nil {
		return none, false, err
	}
	body := dirfsm.CreateUser{ID: in.ID, Email: in.Email, Name: in.Name}
	if in.Password != "" {
		if err := checkPassword(in.Password); err != nil {
			return none, false, err
		}
		stored, err := d.hasher.hash(ctx, d.cfg.Random, in.Password)
		if err != nil {
			return none, false, err
		}
		body.Password = stored
	}
	if in.ID == "" {
		id, err := newID(d.cfg.Random, "u-")
		if err != nil {
			return none, false, err
		}
		body.ID = tenant.UserID(id)
	}
	text := ""
	if in.WithToken {
		minted, secret, err := mint(d.cfg.Random, apiSecret, "tok-")
		if err != nil {
			return none, false, err
		}
		text, body.Token = minted, &secret
	}
	made, replayed, err := propose[dirfsm.UserCreated](ctx, d, by, key, "", dirfsm.NumCreateUser, body)
	if err != nil {
		return none, false, err
	}
	return UserCreated{User: made.ID, TokenID: made.TokenID, Token: once(text, body.Token, made.TokenID)}, replayed, nil
}

// once returns a secret's text if the effect that the command had is the one that
// this very secret was made for. A replay by the client is another's; a replay
// that answers a retry of our own, after an unknown outcome, is ours.
func once(text string, s *dirfsm.Secret, id string) string {
	if s == nil || s.ID != id {
		return ""
	}
	return text
}

// SetPassword replaces a password and closes the user's sessions; by the user or
// an operator. For key.Hash see CreateUser.
func (d *Directory) SetPassword(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, password string) (bool, error) {
	if err := checkPassword(password); err != nil {
		return false, err
	}
	stored, err := d.hasher.hash(ctx, d.cfg.Random, password)
	if err != nil {
		return false, err
	}
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, "", dirfsm.NumSetPassword, dirfsm.SetPassword{User: user, Password: stored})
	return replayed, err
}

// CreateToken makes an API token; by the user or an operator.
func (d *Directory) CreateToken(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, name string) (TokenCreated, bool, error) {
	none := TokenCreated{}
	if err := checkName("name", name); err != nil {
		return none, false, err
	}
	text, secret, err := mint(d.cfg.Random, apiSecret, "tok-")
	if err != nil {
		return none, false, err
	}
	made, replayed, err := propose[dirfsm.TokenCreated](ctx, d, by, key, "", dirfsm.NumCreateToken,
		dirfsm.CreateToken{User: user, Token: secret, Name: name})
	if err != nil {
		return none, false, err
	}
	return TokenCreated{ID: made.ID, Secret: once(text, &secret, made.ID)}, replayed, nil
}

// RevokeToken ends an API token; by the user or an operator.
func (d *Directory) RevokeToken(ctx context.Context, by Actor, key *raftfsm.Key, user tenant.UserID, tokenID string) (bool, error) {
	_, replayed, err := propose[dirfsm.Nothing](ctx, d, by, key, "", dirfsm.NumRevokeToken, dirfsm.RevokeToken{User: user, ID: tokenID})
	return replayed, err
}

// OpenSession logs a user in. An unknown address, a user without a password and
// a wrong password take the same time and are the same ErrUnauthenticated.
func (d *Directory) OpenSession(ctx context.Context, email, password string) (SessionOpened, error) {
	none := SessionOpened{}
	var user tenant.UserID
	var stored string
	var version int64
	if len(email) <= maxEmail && len(password) <= maxPassword {
		_, err := d.space.View(func(c *store.Conn) error {
			_, err := c.One("SELECT user_id, password, password_version FROM user WHERE email_fold = ?", func(r *store.Row) error {
				user, stored, version = tenant.UserID(r.ColumnText(0)), r.ColumnText(1), r.ColumnInt64(2)
				return nil
			}, strings.ToLower(email))
			return err
		})
		if err != nil {
			return none, err
		}
	} else {
		password = "" // too long to be anyone's, and too long to hash
	}
	if stale := d.Fresh(); stale != nil {
		return none, stale
	}
	good, err := d.hasher.verify(ctx, stored, password)
	if err != nil {
		return none, err
	}
	if !good {
		return none, ErrUnauthenticated
	}
	text, secret, err := mint(d.cfg.Random, sessionSecret, "ses-")
	if err != nil {
		return none, err
	}
	c, err := raftfsm.NewCommand(dirfsm.NumOpenSession, "", dirfsm.OpenSession{
		User: user, PasswordVersion: version, Session: secret, Lifetime: sessionLife.Microseconds()})
	if err != nil {
		return none, err
	}
	c.Actor = string(user) // no key: the session's id makes a repetition harmless
	out, err := d.submit(ctx, c)
	if err != nil {
		return none, err
	}
	var made dirfsm.SessionOpened
	if err := out.Into(&made); err != nil {
		return none, err
	}
	return SessionOpened{ID: secret.ID, User: user, Token: text, ExpiresAt: time.UnixMicro(made.ExpiresAt).UTC()}, nil
}

var errNoSession = &fault.Error{Kind: fault.Conflict, Slug: "not-a-session", Detail: "the request was made with an API token; only a session can be closed this way"}

// CloseSession logs out. An API token is not a session: 409 not-a-session.
func (d *Directory) CloseSession(ctx context.Context, s Session) error {
	if s.Kind != LoginSession {
		return errNoSession
	}
	_, _, err := propose[dirfsm.Nothing](ctx, d, ByUser(s.User), nil, "", dirfsm.NumCloseSession, dirfsm.CloseSession{User: s.User, ID: s.ID})
	return err
}

// User returns a user, or fault.Unknown().
func (d *Directory) User(_ context.Context, id tenant.UserID) (User, error) {
	var u User
	found := false
	_, err := d.space.View(func(c *store.Conn) (err error) {
		found, err = c.One("SELECT user_id, email, name, created_at FROM user WHERE user_id = ?", func(r *store.Row) error {
			u = User{ID: tenant.UserID(r.ColumnText(0)), Email: r.ColumnText(1), Name: r.ColumnText(2), CreatedAt: micros(r, 3)}
			return nil
		}, string(id))
		return err
	})
	if err == nil && !found {
		err = fault.Unknown()
	}
	return u, err
}

// Tokens lists a user's API tokens by id.
func (d *Directory) Tokens(ctx context.Context, user tenant.UserID) ([]Token, error) {
	var out []Token
	err := d.space.Scan(ctx, func(c *store.Conn) error {
		return c.Query("SELECT token_id, name, created_at FROM token WHERE user_id = ? ORDER BY token_id", func(r *store.Row) error {
			out = append(out, Token{ID: r.ColumnText(0), Name: r.ColumnText(1), CreatedAt: micros(r, 2)})
			return nil
		}, string(user))
	})
	return out, err
}
