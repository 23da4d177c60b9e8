package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"navra/internal/store"
)

// steps bring a schema from one version to the next; the first makes it. A schema that lacks some is upgraded, one that has more is refused. What a
// step takes away is also what statements of the navra before need: a replica that still runs is then refused by the server, and denies.
var steps = []string{tables}

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

// upgradeTimeout is how long a replica waits while another upgrades.
const upgradeTimeout = "10min"

// migrate makes the schema and its tables or upgrades them, once over all replicas that start at the same time.
func (db *DB) migrate(ctx context.Context) error {
	v, err := db.version(ctx, db.pool)
	newest := len(db.steps)
	switch {
	case err != nil || v == newest:
		return err
	case v > newest:
		return db.errNewer(v)
	case db.readOnly && v == 0:
		return fmt.Errorf("its schema %q holds no tables of navra's: start the gateway once, or name the right database", db.schema)
	case db.readOnly:
		return fmt.Errorf("its schema %q is version %d, which is of an older navra than this (%d): start the gateway on it once, which upgrades it", db.schema, v, newest)
	}
	return db.tx(ctx, 0, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", upgradeTimeout); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, lock, db.lockKey("schema")); err != nil {
			return err
		}
		v, err := db.version(ctx, tx)
		switch {
		case err != nil || v == newest: // another replica was first
			return err
		case v > newest:
			return db.errNewer(v)
		case v == 0:
			return db.create(ctx, tx)
		}
		if err := db.upgrade(ctx, tx, v); err != nil {
			return fmt.Errorf("its schema %q is version %d and could not be brought to %d; it is as it was: %w", db.schema, v, newest, err)
		}
		return nil
	})
}

func (db *DB) errNewer(v int) error {
	return fmt.Errorf("its schema %q is version %d, which is of a newer navra than this (%d): use that one", db.schema, v, len(db.steps))
}

func (db *DB) create(ctx context.Context, tx pgx.Tx) error {
	if err := db.makeSchema(ctx, tx); err != nil {
		return err
	}
	if err := db.take(ctx, tx, 0); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, db.in("INSERT INTO @schema_version (version) VALUES ($1)"), len(db.steps))
	return err
}

// take takes all steps that a version lacks.
func (db *DB) take(ctx context.Context, tx pgx.Tx, from int) error {
	for _, step := range db.steps[from:] {
		if _, err := tx.Exec(ctx, db.in(step)); err != nil {
			return err
		}
	}
	return nil
}

// upgrade takes all steps that are left while nobody appends, and says so in the chain.
func (db *DB) upgrade(ctx context.Context, tx pgx.Tx, from int) error {
	if _, err := tx.Exec(ctx, lock, db.head()); err != nil {
		return err
	}
	if err := db.take(ctx, tx, from); err != nil {
		return err
	}
	last, err := db.headOf(ctx, tx)
	if err != nil {
		return err
	}
	w, err := store.Upgraded(last, from, len(db.steps), db.now())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, db.in("INSERT INTO @entries (seq, body, hash) VALUES ($1, $2, $3)"), int64(w.Seq), w.Encoded, w.Hash[:]); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, db.in("UPDATE @schema_version SET version = $1"), len(db.steps))
	return err
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
