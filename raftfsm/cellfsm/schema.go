package cellfsm

import (
	"celld/raftfsm"
	"celld/store"
)

// CellSchema is the layout of cell.db.
func CellSchema() *store.Schema {
	return &store.Schema{Kind: "cell", Migrations: []string{raftfsm.KeyTable + `
CREATE TABLE cell (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  name TEXT NOT NULL, key TEXT NOT NULL, feature_level INTEGER NOT NULL, created_at INTEGER NOT NULL,
  moves_since INTEGER NOT NULL DEFAULT 0 -- a move that was planned before it does not begin here
) STRICT;
CREATE TABLE tenant (
  uid TEXT NOT NULL PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  tenant_fold TEXT NOT NULL UNIQUE, -- ids are unique ignoring case
  epoch INTEGER NOT NULL,
  folder TEXT NOT NULL,             -- of the current incarnation, below tenants/<uid>
  secret BLOB NOT NULL,             -- what the tenant's cursors are sealed with
  arrived_index INTEGER NOT NULL,   -- the log entry with which the incarnation came
  state TEXT NOT NULL,              -- ACTIVE, FROZEN or RETIRED, as in the tenant's file
  move_id TEXT NOT NULL,            -- that brought, froze or retired it; '' for none
  changed_index INTEGER NOT NULL,   -- the last entry of the cell's own that changed the tenant's file
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE arrival (              -- tenants that a move brings here: IMPORTING
  uid TEXT NOT NULL PRIMARY KEY,
  tenant_id TEXT NOT NULL, tenant_fold TEXT NOT NULL UNIQUE,
  epoch INTEGER NOT NULL, move_id TEXT NOT NULL, planned_at INTEGER NOT NULL,
  from_epoch INTEGER NOT NULL, from_key TEXT NOT NULL,
  secret BLOB NOT NULL,
  folder TEXT NOT NULL              -- where the file is staged, below tenants/<uid>
) STRICT, WITHOUT ROWID;
CREATE TABLE ended_move (           -- moves that are over here, whether or not they were known before
  move_id TEXT NOT NULL PRIMARY KEY,
  uid TEXT NOT NULL, outcome TEXT NOT NULL, planned_at INTEGER NOT NULL,
  ended_index INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ended_move_planned ON ended_move (planned_at, move_id);
CREATE TABLE departed (             -- tenants that were here and were dropped
  uid TEXT NOT NULL PRIMARY KEY,
  epoch INTEGER NOT NULL            -- of the last incarnation
) STRICT, WITHOUT ROWID;
`}}
}

// TenantSchema is the layout of a tenant's file. The tables of a tenant's own
// records are WITHOUT ROWID, so that a row is found with one descent.
func TenantSchema() *store.Schema {
	return &store.Schema{Kind: "tenant", Migrations: []string{raftfsm.KeyTable + `
CREATE TABLE customer (
  tenant_id TEXT NOT NULL, customer_id INTEGER NOT NULL, version INTEGER NOT NULL,
  name TEXT NOT NULL, reference TEXT, email TEXT, country TEXT,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, customer_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX customer_reference ON customer (tenant_id, reference) WHERE reference IS NOT NULL;

CREATE TABLE invoice (
  tenant_id TEXT NOT NULL, invoice_id INTEGER NOT NULL, version INTEGER NOT NULL,
  customer_id INTEGER NOT NULL,
  amount_minor INTEGER NOT NULL CHECK (amount_minor >= 0), currency TEXT NOT NULL, exponent INTEGER NOT NULL,
  reference TEXT, status TEXT NOT NULL, memo TEXT, issued_at INTEGER,
  cost_minor INTEGER, note TEXT, -- the internal part
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, invoice_id),
  FOREIGN KEY (tenant_id, customer_id) REFERENCES customer (tenant_id, customer_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX invoice_reference ON invoice (tenant_id, reference) WHERE reference IS NOT NULL;
CREATE INDEX invoice_customer ON invoice (tenant_id, customer_id, invoice_id);
CREATE INDEX invoice_status ON invoice (tenant_id, status, invoice_id);

CREATE TABLE audit (
  tenant_id TEXT NOT NULL, sequence INTEGER NOT NULL, at INTEGER NOT NULL,
  actor TEXT NOT NULL, event TEXT NOT NULL, object_id INTEGER NOT NULL, version INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE copy_start ( -- the copy of the file that was begun last, for a move
  tenant_id TEXT NOT NULL PRIMARY KEY, move_id TEXT NOT NULL, epoch INTEGER NOT NULL,
  copies INTEGER NOT NULL, at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE VIEW outbox AS SELECT tenant_id, sequence, at, event, object_id, version FROM audit;
`}}
}
