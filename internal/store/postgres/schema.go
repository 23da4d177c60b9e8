package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// schemaVersion is the version of the tables below. A schema of a lower one is upgraded, of a higher one refused.
const schemaVersion = 1

// Each commit changes its scope's use: no index holds that, so that the row alone is written.
// Payloads do not refer to entries: the check of each row would cost as much as the row, and verification finds what does not belong.
const tables = `
CREATE TABLE @entries (
	seq bigint PRIMARY KEY,
	body bytea NOT NULL,
	hash bytea NOT NULL
);
CREATE TABLE @payloads (
	seq bigint NOT NULL,
	name text NOT NULL,
	stored bytea NOT NULL,
	stored_salt bytea NOT NULL,
	whole_salt bytea NOT NULL,
	PRIMARY KEY (seq, name)
);
CREATE TABLE @checkpoints (
	size bigint PRIMARY KEY,
	note bytea NOT NULL,
	frontier bytea NOT NULL
);
CREATE TABLE @scopes (
	id text PRIMARY KEY,
	version bigint NOT NULL,
	label text NOT NULL,
	lineage text NOT NULL,
	used bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX scopes_lineage ON @scopes (lineage);
CREATE TABLE @placeholders (
	scope text NOT NULL,
	kind text NOT NULL,
	n bigint NOT NULL,
	principal text NOT NULL,
	tag bytea NOT NULL,
	box bytea NOT NULL,
	objects text NOT NULL,
	PRIMARY KEY (scope, kind, n),
	UNIQUE (scope, kind, tag)
);
CREATE TABLE @kept (key text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE @sessions_ended (nonce text PRIMARY KEY, expires bigint NOT NULL);
CREATE TABLE @tokens (
	id text PRIMARY KEY,
	hash bytea NOT NULL UNIQUE,
	principal text NOT NULL,
	created bigint NOT NULL,
	expires bigint NOT NULL,
	revoked bigint NOT NULL
);
CREATE TABLE @schema_version (version bigint NOT NULL);
`

// migrate makes the schema and its tables, once over all replicas that start at the same time.
func (db *DB) migrate(ctx context.Context) error {
	v, err := db.version(ctx, db.pool)
	if err != nil {
		return err
	}
	switch {
	case v == schemaVersion:
		return nil
	case v > schemaVersion:
		return fmt.Errorf("its schema %q is version %d, which is of a newer navra than this (%d): use that one", db.schema, v, schemaVersion)
	case db.readOnly:
		return fmt.Errorf("its schema %q holds no tables of navra's: start the gateway once, or name the right database", db.schema)
	}
	return db.tx(ctx, db.lockKey("schema"), func(tx pgx.Tx) error {
		if v, err := db.version(ctx, tx); err != nil || v == schemaVersion {
			return err // another replica was first
		}
		if err := db.makeSchema(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, db.in(tables)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, db.in("INSERT INTO @schema_version (version) VALUES ($1)"), schemaVersion)
		return err
	})
}

func (db *DB) makeSchema(ctx context.Context, tx pgx.Tx) error {
	var there bool
	var relations int
	err := tx.QueryRow(ctx, `SELECT count(DISTINCT n.oid) > 0, count(c.oid) FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = $1`, db.schema).Scan(&there, &relations)
	switch {
	case err != nil:
		return err
	case relations > 0:
		return fmt.Errorf("its schema %q is of another program: name a database without one", db.schema)
	case there:
		return nil
	}
	_, err = tx.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{db.schema}.Sanitize())
	const noPrivilege = "42501"
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Code == noPrivilege {
		return fmt.Errorf("this user may not make the schema %q: let the owner of the database run CREATE SCHEMA %s AUTHORIZATION and its name", db.schema, pgx.Identifier{db.schema}.Sanitize())
	}
	return err
}

type queryer interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// version is 0 where there are no tables.
func (db *DB) version(ctx context.Context, q queryer) (v int, err error) {
	var there bool
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'schema_version')`, db.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = q.QueryRow(ctx, db.in("SELECT coalesce(max(version), 0) FROM @schema_version")).Scan(&v)
	return v, err
}
