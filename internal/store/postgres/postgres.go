// Package postgres keeps entries and state in a schema of a PostgreSQL database that several replicas use at once. Appending is
// serialised over all of them by an advisory lock, the head lock; what one replica gathers while it waits is one transaction.
package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"navra/internal/store"
)

// Options vary how a database is opened. The zero value is for use.
type Options struct {
	Logger   *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	ReadOnly bool             // the tables must be there and are not written to
	Schema   string           // that holds the tables; "": navra
}

const (
	defaultSchema  = "navra"
	connectTimeout = 5 * time.Second
)

var (
	errReadOnly = errors.New("the store was opened to be read only")
	errClosed   = errors.New("the store is closed")
)

// A DB is an open database. Its methods may be called concurrently.
type DB struct {
	schema   string
	name     string // what errors call it: no password
	log      *slog.Logger
	now      func() time.Time
	readOnly bool
	steps    []string // of the schema
	secrets  *strings.Replacer
	pool     *pgxpool.Pool
	commits  *pgxpool.Pool // one connection: readers cannot keep a commit waiting

	group     *store.Committer          // nil where the store is read only
	gatherer  store.Gatherer            // of who holds the head lock
	committed func(store.Receipt) error // nil: nobody is told
	tail      store.Tail                // of who holds the head lock
}

// Open opens the database of a URL (postgres://USER:PASSWORD@HOST/DATABASE), making the schema and its tables where they are not
// there, and upgrading those of an older navra. A schema of another program, or of a newer navra, is an error. The password is in no error and no log.
func Open(ctx context.Context, url string, o Options) (*DB, error) { return open(ctx, url, o, steps) }

func open(ctx context.Context, url string, o Options, steps []string) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	c := cfg.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "navra"
	}
	db := &DB{
		schema: o.Schema, log: o.Logger, now: o.Now, readOnly: o.ReadOnly, steps: steps, secrets: hide(c.Password),
	}
	db.name = db.secrets.Replace(fmt.Sprintf("store %s/%s (PostgreSQL)", c.Host, c.Database))
	if err := db.connect(ctx, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", db.name, err)
	}
	return db, nil
}

// CheckURL finds what Open would not take of a URL, without connecting. What it returns quotes nothing of it.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return errURL
	}
	return nil
}

// errURL stands for pgx's, which quotes the URL, and hides of it what depends on how the URL is broken.
var errURL = errors.New("store: the URL of the PostgreSQL database cannot be read, has an sslmode that there is not, or names a file that is not there; want postgres://USER:PASSWORD@HOST:PORT/DATABASE, with % before what a URL cannot hold")

func (db *DB) connect(ctx context.Context, cfg *pgxpool.Config) (err error) {
	if db.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return db.clean(err)
	}
	one := cfg.Copy()
	one.MaxConns, one.MinConns, one.MinIdleConns = 1, 0, 0
	if db.commits, err = pgxpool.NewWithConfig(ctx, one); err != nil {
		db.pool.Close()
		return db.clean(err)
	}
	if err = db.migrate(ctx); err == nil {
		err = db.warn(ctx)
	}
	if err != nil {
		db.commits.Close()
		db.pool.Close()
		return db.clean(err)
	}
	if !db.readOnly {
		db.gatherer = store.Gatherer{Accept: checkPayloads, Now: db.now}
		db.group = store.NewCommitter(db.writeGroup)
	}
	return nil
}

// OnCommit has f told of the newest entry after each group, before those whose commits it holds are; an error is theirs too. It is called
// before the first commit.
func (db *DB) OnCommit(f func(store.Receipt) error) { db.committed = f }

// Expect says what the log was last seen to have: see store.Tail.
func (db *DB) Expect(known store.Receipt, found func(problem string)) { db.tail.Expect(known, found) }

// warn says what of the server's settings loses entries.
func (db *DB) warn(ctx context.Context) error {
	var fsync string
	if err := db.pool.QueryRow(ctx, "SELECT current_setting('fsync')").Scan(&fsync); err != nil {
		return err
	}
	if fsync == "off" {
		db.log.Warn("the database server runs with fsync off: a power cut may lose entries", "store", db.name)
	}
	return nil
}

// Close waits for the group that is being written and closes the database. Commits that no group has taken are refused.
func (db *DB) Close() error {
	if db.group != nil {
		db.group.Close()
	}
	db.commits.Close()
	db.pool.Close()
	return nil
}

// in names the tables of a statement: @entries is entries in the schema. Statements name it themselves, since a pooler between
// here and the server may not keep a search path.
func (db *DB) in(statement string) string {
	return strings.ReplaceAll(statement, "@", pgx.Identifier{db.schema}.Sanitize()+".")
}

// settings hold for one transaction. One that waits, or whose replica is gone, must not keep the head lock from the others for long;
// and what is committed is on the server's disk, whatever its default is.
const settings = `SELECT set_config('lock_timeout', '10s', true), set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

const lock = "SELECT pg_advisory_xact_lock($1)"

// lockKey is the advisory lock of something in the schema. Two that have the same key wait for each other, no more.
func (db *DB) lockKey(of string) int64 {
	sum := sha256.Sum256([]byte("navra\x00" + db.schema + "\x00" + of))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

func (db *DB) head() int64 { return db.lockKey("head") }

// tx runs f in a transaction, under an advisory lock if key is not 0: all of it or nothing is kept.
func (db *DB) tx(ctx context.Context, key int64, f func(pgx.Tx) error) error {
	if db.readOnly {
		return errReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return db.clean(err)
	}
	defer tx.Rollback(ctx) // after Commit it does nothing; a connection that cannot is closed
	if _, err := tx.Exec(ctx, settings); err != nil {
		return db.clean(err)
	}
	if key != 0 {
		if _, err := tx.Exec(ctx, lock, key); err != nil {
			return db.clean(err)
		}
	}
	if err := f(tx); err != nil {
		return db.clean(err)
	}
	return db.clean(tx.Commit(ctx))
}

// hide replaces a password in each form that a URL may have it in.
func hide(password string) *strings.Replacer {
	if password == "" {
		return strings.NewReplacer()
	}
	user := strings.TrimPrefix(url.UserPassword("", password).String(), ":")
	const shown = "[redacted]"
	return strings.NewReplacer(password, shown, user, shown, url.QueryEscape(password), shown, url.PathEscape(password), shown)
}
