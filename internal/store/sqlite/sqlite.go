// Package sqlite keeps entries and state in one SQLite file that several processes may use at once. Appending is
// serialised over all of them by SQLite's own write lock, taken when a transaction begins.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"modernc.org/sqlite" // and the database/sql driver "sqlite"

	"navra/internal/store"
)

// Options vary how a database is opened. The zero value is for use.
type Options struct {
	Logger   *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	ReadOnly bool             // the file must be there and is not written to
	Fsync    bool             // a commit is on the disk before it is answered
}

// busyTimeout is how long a process waits for another's write lock.
const busyTimeout = 10 * time.Second

// A DB is an open database. Its methods may be called concurrently.
type DB struct {
	path  string
	write *sql.DB // one connection: BEGIN IMMEDIATE
	read  *sql.DB
	now   func() time.Time

	group   *store.Committer // nil where the file is read only
	onGroup *groupConn       // of the committer's goroutine

	committed func(store.Receipt) error // nil: nobody is told

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // on read; guarded by mu
}

// Open opens the database at path, making it, its folder (0700) and its tables where they are not there. A file that is no
// database of navra's, or of a newer navra, is an error.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	if err := prepareFile(abs, o); err != nil {
		return nil, err
	}
	db := &DB{path: abs, now: o.Now, stmts: map[string]*sql.Stmt{}}
	if db.write, err = sql.Open("sqlite", dsn(abs, o, true)); err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	db.write.SetMaxOpenConns(1)
	if db.read, err = sql.Open("sqlite", dsn(abs, o, false)); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), db.write.Close())
	}
	db.read.SetMaxOpenConns(4)
	if err := patiently(func() error { return db.migrate(ctx, o.ReadOnly) }); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), db.Close())
	}
	if !o.ReadOnly {
		db.group = store.NewCommitter(db.writeGroup)
	}
	return db, nil
}

// prepared returns a statement on the connections that read, prepared once.
func (db *DB) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if s := db.stmts[query]; s != nil {
		return s, nil
	}
	s, err := db.read.PrepareContext(ctx, query)
	if err == nil {
		db.stmts[query] = s
	}
	return s, err
}

// OnCommit has f told of the newest entry after each group, before those whose commits it holds are; an error is theirs too. It is called
// before the first commit.
func (db *DB) OnCommit(f func(store.Receipt) error) { db.committed = f }

// prepareFile makes the folder and the file, so that nobody else may ever read it.
func prepareFile(path string, o Options) error {
	if o.ReadOnly {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		return nil
	}
	there := filepath.Dir(path)
	for there != filepath.Dir(there) && !exists(there) {
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	err = f.Close()
	if o.Fsync {
		err = errors.Join(err, syncFolders(filepath.Dir(path), there))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	return nil
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// syncFolders puts the names in a folder on the disk, and in those above it up to one: SQLite does not for a file that was there when it
// came, and what was committed to a file without a name is lost.
func syncFolders(dir, upto string) error {
	if runtime.GOOS == "windows" { // which has no such thing
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil || dir == upto {
			return err
		}
	}
}

func dsn(path string, o Options, immediate bool) string {
	q := url.Values{}
	synchronous := "synchronous(NORMAL)"
	if o.Fsync {
		synchronous = "synchronous(FULL)"
	}
	for _, p := range []string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), synchronous, "foreign_keys(ON)", "trusted_schema(OFF)",
	} {
		q.Add("_pragma", p)
	}
	if o.ReadOnly {
		q.Set("mode", "ro")
	} else {
		q.Add("_pragma", "journal_mode(WAL)")
	}
	if immediate {
		q.Set("_txlock", "immediate")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// Close writes what waits, and closes the database.
func (db *DB) Close() error {
	if db.group != nil {
		db.group.Close()
	}
	return errors.Join(db.write.Close(), db.read.Close())
}

// schemaVersion is the version of the tables below. A database of a lower one is upgraded, of a higher one refused.
const schemaVersion = 2

const schema = `
CREATE TABLE entries (
	seq INTEGER PRIMARY KEY,
	body BLOB NOT NULL,
	hash BLOB NOT NULL,
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

// migrate makes the tables, once over all processes that start at the same time.
func (db *DB) migrate(ctx context.Context, readOnly bool) error {
	v, err := db.version(ctx, db.read)
	if err != nil {
		return err
	}
	if v == schemaVersion {
		return nil
	}
	if v > schemaVersion {
		return fmt.Errorf("its schema is version %d, which is of a newer navra than this (%d): use that one", v, schemaVersion)
	}
	if readOnly {
		return errors.New("it is not a database of navra's")
	}
	if v == 1 {
		return errors.New("it was written by a navra before the first release, whose entries this one cannot read: keep it for its record, and name another file")
	}
	return db.tx(ctx, func(tx *sql.Tx) error {
		if v, err := db.version(ctx, tx); err != nil || v == schemaVersion {
			return err // another process was first
		}
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
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}

// patiently tries f again while the file is locked: where several processes open a new file at once, the change to WAL does not wait
// for its lock by itself.
func patiently(f func() error) error {
	const busy = 5 // SQLITE_BUSY; extended codes have it in their low byte
	for end := time.Now().Add(busyTimeout); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if e := (*sqlite.Error)(nil); !errors.As(err, &e) || e.Code()&0xff != busy || time.Now().After(end) {
			return err
		}
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

// tx runs f in a write transaction: all of it or nothing is kept.
func (db *DB) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
