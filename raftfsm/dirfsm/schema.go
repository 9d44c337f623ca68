package dirfsm

import (
	"celld/raftfsm"
	"celld/store"
)

// Schema is the layout of directory.db.
func Schema() *store.Schema {
	return &store.Schema{Kind: "directory", Migrations: []string{schema1}}
}

// Times are unix microseconds. Columns named *_fold are the lower-case form under
// which something is unique.
const schema1 = `
CREATE TABLE user (
  user_id TEXT PRIMARY KEY, user_fold TEXT NOT NULL UNIQUE,
  email TEXT NOT NULL, email_fold TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  password TEXT NOT NULL,             -- argon2id in PHC form; '' for none
  password_version INTEGER NOT NULL,  -- grows with each change of it
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
  token_id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES user (user_id),
  hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX token_user ON token (user_id, token_id);

CREATE TABLE session (
  session_id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES user (user_id),
  hash BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_user ON session (user_id, created_at, session_id);
CREATE INDEX session_expiry ON session (expires_at);

CREATE TABLE cell (
  name TEXT PRIMARY KEY, name_fold TEXT NOT NULL UNIQUE, cell_key TEXT NOT NULL UNIQUE,
  region TEXT NOT NULL, tier TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'draining')),
  capacity INTEGER NOT NULL,
  tenants INTEGER NOT NULL,           -- how many are placed here or on their way
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE cell_node (
  cell TEXT NOT NULL REFERENCES cell (name), node TEXT NOT NULL, address TEXT NOT NULL,
  PRIMARY KEY (cell, node)
) STRICT, WITHOUT ROWID;

-- A row is never deleted: it is the tombstone of its id and uid.
CREATE TABLE tenant (
  uid TEXT PRIMARY KEY, tenant_id TEXT NOT NULL UNIQUE, tenant_fold TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL, region TEXT NOT NULL, tier TEXT NOT NULL,
  cell TEXT NOT NULL REFERENCES cell (name),
  epoch INTEGER NOT NULL,             -- of the placement
  last_epoch INTEGER NOT NULL,        -- the highest ever given out; only grows
  state TEXT NOT NULL CHECK (state IN ('provisioning', 'active', 'moving', 'deleting', 'deleted')),
  suspended INTEGER NOT NULL,
  schema_version INTEGER NOT NULL,
  policy INTEGER NOT NULL,            -- the highest membership revision; only grows
  created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tenant_provisioning ON tenant (created_at, uid) WHERE state = 'provisioning';

-- record is the whole move as package gateway/moves encodes it; the columns before
-- it repeat what rows are found by.
CREATE TABLE move (
  move_id TEXT PRIMARY KEY, uid TEXT NOT NULL REFERENCES tenant (uid),
  source TEXT NOT NULL REFERENCES cell (name), destination TEXT NOT NULL REFERENCES cell (name),
  epoch_to INTEGER NOT NULL,
  state TEXT NOT NULL,
  copy TEXT NOT NULL,                 -- at the source: none, kept, dropping, dropped
  open INTEGER NOT NULL,              -- 1 until the move is over
  planned_at INTEGER NOT NULL, changed_at INTEGER NOT NULL,
  record BLOB NOT NULL,
  UNIQUE (uid, epoch_to)
) STRICT, WITHOUT ROWID;
CREATE INDEX move_open ON move (planned_at, move_id) WHERE open = 1;
CREATE INDEX move_copy ON move (changed_at, move_id) WHERE copy IN ('kept', 'dropping');
CREATE INDEX move_past ON move (changed_at, move_id) WHERE open = 0 AND copy IN ('none', 'dropped');

CREATE TABLE member (
  uid TEXT NOT NULL REFERENCES tenant (uid), user_id TEXT NOT NULL REFERENCES user (user_id),
  role INTEGER NOT NULL CHECK (role BETWEEN 1 AND 5), revision INTEGER NOT NULL,
  added_at INTEGER NOT NULL, changed_at INTEGER NOT NULL,
  PRIMARY KEY (uid, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX member_user ON member (user_id, uid);

CREATE TABLE invite (
  invite_id TEXT PRIMARY KEY, uid TEXT NOT NULL REFERENCES tenant (uid),
  email TEXT NOT NULL, email_fold TEXT NOT NULL,
  role INTEGER NOT NULL CHECK (role BETWEEN 1 AND 5),
  hash BLOB NOT NULL UNIQUE, created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX invite_tenant ON invite (uid, created_at, invite_id);
CREATE INDEX invite_expiry ON invite (expires_at);

CREATE TABLE audit (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL,
  actor TEXT NOT NULL, action TEXT NOT NULL,
  tenant_id TEXT NOT NULL, uid TEXT NOT NULL,  -- '' where no tenant is concerned
  subject TEXT NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_tenant ON audit (tenant_id, id);
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_time ON audit (at);
` + raftfsm.KeyTable + `
CREATE INDEX idempotency_time ON idempotency (created_at);`
