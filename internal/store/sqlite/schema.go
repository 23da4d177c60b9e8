package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"

	"navra/internal/store"
)

// schemaVersion is the version of the tables below. A database of a lower one is upgraded, of a higher one refused.
const schemaVersion = 3

// schema makes a new database; steps bring an old one to the same.
const schema = `
CREATE TABLE entries (
	seq INTEGER PRIMARY KEY,
	bodies BLOB NOT NULL,
	hashes BLOB NOT NULL,
	payloads BLOB
) STRICT;
CREATE TABLE checkpoints (
	size INTEGER PRIMARY KEY,
	note BLOB NOT NULL,
	frontier BLOB NOT NULL
) STRICT;
CREATE TABLE scopes (
	id TEXT PRIMARY KEY,
	version INTEGER NOT NULL,
	label TEXT NOT NULL,
	lineage TEXT NOT NULL,
	used INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX scopes_lineage ON scopes(lineage, used);
CREATE TABLE placeholders (
	scope TEXT NOT NULL,
	kind TEXT NOT NULL,
	n INTEGER NOT NULL,
	principal TEXT NOT NULL,
	tag BLOB NOT NULL,
	box BLOB NOT NULL,
	objects TEXT NOT NULL,
	PRIMARY KEY (scope, kind, n),
	UNIQUE (scope, kind, tag)
) STRICT, WITHOUT ROWID;
CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE sessions_ended (nonce TEXT PRIMARY KEY, expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
	id TEXT PRIMARY KEY,
	hash BLOB NOT NULL UNIQUE,
	principal TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	revoked INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
`

// steps bring a database from one version to the next: steps[0] from 1 to 2. What a step takes away is also what statements of the navra before
// need: one that still runs is then refused by the database, and denies.
var steps = [schemaVersion - 1]func(context.Context, *sql.Tx) error{pack, share}

// migrate makes the tables or upgrades them, once over all processes that start at the same time.
func (db *DB) migrate(ctx context.Context, readOnly bool) error {
	v, err := db.version(ctx, db.read)
	switch {
	case readOnly && (codeOf(err) == codeReadOnly || codeOf(err) == codeCantOpen): // that it can be opened is known
		return fmt.Errorf("a file must be made beside it to read it, and its folder cannot be written: copy it, and FILE-wal where that is there, to another one: %w", err)
	case err != nil || v == schemaVersion:
		return err
	case v > schemaVersion:
		return errNewer(v)
	case readOnly && v == 0:
		return errors.New("it is not a database of navra's")
	case readOnly:
		return fmt.Errorf("its schema is version %d, which is of an older navra than this (%d): start the gateway on it once, which upgrades it", v, schemaVersion)
	}
	return db.tx(ctx, func(tx *sql.Tx) error {
		v, err := db.version(ctx, tx)
		switch {
		case err != nil || v == schemaVersion: // another process was first
			return err
		case v > schemaVersion:
			return errNewer(v)
		case v == 0:
			return create(ctx, tx)
		}
		if err := db.upgrade(ctx, tx, v); err != nil {
			return fmt.Errorf("its schema is version %d and could not be brought to %d; the file is as it was: %w", v, schemaVersion, err)
		}
		return nil
	})
}

func errNewer(v int) error {
	return fmt.Errorf("its schema is version %d, which is of a newer navra than this (%d): use that one", v, schemaVersion)
}

func create(ctx context.Context, tx *sql.Tx) error {
	var tables int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if tables > 0 {
		return errors.New("it is a database of another program")
	}
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	return setVersion(ctx, tx)
}

// upgrade takes all steps that are left, and says so in the chain.
func (db *DB) upgrade(ctx context.Context, tx *sql.Tx, from int) error {
	if from < 1 {
		return errors.New("it is not a database of navra's")
	}
	for _, step := range steps[from-1:] {
		if err := step(ctx, tx); err != nil {
			return err
		}
	}
	last, err := headOf(ctx, tx)
	if err != nil {
		return err
	}
	w, err := store.Upgraded(last, from, schemaVersion, db.now())
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, groupStatements[insert], int64(w.Seq), w.Encoded, w.Hash[:], nil); err != nil {
		return err
	}
	return setVersion(ctx, tx)
}

const headQuery = "SELECT seq, hashes FROM entries ORDER BY seq DESC LIMIT 1"

func headOf(ctx context.Context, tx *sql.Tx) (last store.Receipt, err error) {
	var hashes []byte
	err = tx.QueryRowContext(ctx, headQuery).Scan(&last.Seq, &hashes)
	if errors.Is(err, sql.ErrNoRows) {
		return last, nil
	} else if err != nil {
		return last, err
	}
	if last.Hash, err = lastHash(hashes); err != nil {
		return last, fmt.Errorf("entry %d: %w", last.Seq, err)
	}
	return last, nil
}

func setVersion(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	return err
}

// upgradeTimeout is how long a process waits while another upgrades: a minute for a million entries.
const upgradeTimeout = 10 * time.Minute

// patiently tries f again while the file is locked: where several processes open a new file at once, the change to WAL does not wait
// for its lock by itself; and an upgrade takes longer than any other transaction.
func (db *DB) patiently(ctx context.Context, f func() error) error {
	const busy = 5 // SQLITE_BUSY; extended codes have it in their low byte
	began := time.Now()
	for {
		err := f()
		e := (*sqlite.Error)(nil)
		if !errors.As(err, &e) || e.Code()&0xff != busy || ctx.Err() != nil {
			return err
		}
		limit := busyTimeout
		if v, err := db.version(ctx, db.read); err == nil && v > 0 && v < schemaVersion {
			limit = upgradeTimeout
		}
		if time.Since(began) > limit {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (db *DB) version(ctx context.Context, q queryer) (v int, err error) {
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, fmt.Errorf("it cannot be read as a database: %w", err)
	}
	return v, nil
}
