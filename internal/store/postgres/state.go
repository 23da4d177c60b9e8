package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"navra/internal/auth"
	"navra/internal/store"
)

// exec runs one statement in a transaction of its own and reports how many rows it touched.
func (db *DB) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = db.tx(ctx, 0, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, db.in(statement), args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// Kept implements store.Store.
func (db *DB) Kept(ctx context.Context, key string) (value []byte, err error) {
	err = db.row(ctx, "SELECT value FROM @kept WHERE key = $1", key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	return value, db.clean(err)
}

const keepStatement = "INSERT INTO @kept (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

// Keep implements store.Store.
func (db *DB) Keep(ctx context.Context, key string, value []byte) error {
	_, err := db.exec(ctx, keepStatement, key, orEmpty(value))
	return err
}

// Swap implements store.Store.
func (db *DB) Swap(ctx context.Context, key string, old, value []byte) (bool, error) {
	query, args := "UPDATE @kept SET value = $1 WHERE key = $2 AND value = $3", []any{orEmpty(value), key, old}
	if old == nil {
		query, args = "INSERT INTO @kept (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", []any{key, orEmpty(value)}
	}
	n, err := db.exec(ctx, query, args...)
	return n == 1 && err == nil, err
}

// EndSession implements store.Store. Sessions that have expired since are dropped.
func (db *DB) EndSession(ctx context.Context, nonce string, expires time.Time) error {
	return db.tx(ctx, 0, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, db.in("DELETE FROM @sessions_ended WHERE expires < $1"), db.now().UnixMicro()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, db.in("INSERT INTO @sessions_ended (nonce, expires) VALUES ($1, $2) ON CONFLICT (nonce) DO UPDATE SET expires = excluded.expires"), nonce, expires.UnixMicro())
		return err
	})
}

// SessionEnded implements store.Store.
func (db *DB) SessionEnded(ctx context.Context, nonce string) (ended bool, err error) {
	err = db.row(ctx, "SELECT EXISTS (SELECT 1 FROM @sessions_ended WHERE nonce = $1)", nonce).Scan(&ended)
	return ended, db.clean(err)
}

const tokenColumns = "SELECT id, hash, principal, created, expires, revoked FROM @tokens"

func scanToken(row pgx.Row) (t auth.Token, err error) {
	var hash []byte
	var created, expires, revoked int64
	if err := row.Scan(&t.ID, &hash, &t.Principal, &created, &expires, &revoked); err != nil {
		return auth.Token{}, err
	}
	copy(t.Hash[:], hash)
	t.Created, t.Expires, t.Revoked = fromMicro(created), fromMicro(expires), fromMicro(revoked)
	return t, nil
}

func toMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// AddToken implements store.Store.
func (db *DB) AddToken(ctx context.Context, t auth.Token) error {
	_, err := db.exec(ctx, "INSERT INTO @tokens (id, hash, principal, created, expires, revoked) VALUES ($1, $2, $3, $4, $5, $6)",
		t.ID, t.Hash[:], t.Principal, toMicro(t.Created), toMicro(t.Expires), toMicro(t.Revoked))
	return err
}

// TokenByHash implements store.Store.
func (db *DB) TokenByHash(ctx context.Context, hash [32]byte) (auth.Token, error) {
	t, err := scanToken(db.row(ctx, tokenColumns+" WHERE hash = $1", hash[:]))
	if errors.Is(err, pgx.ErrNoRows) {
		return auth.Token{}, store.ErrNotFound
	}
	return t, db.clean(err)
}

// Tokens implements store.Store; the oldest first.
func (db *DB) Tokens(ctx context.Context) ([]auth.Token, error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	rows, _ := db.pool.Query(ctx, db.in(tokenColumns+" ORDER BY created, id")) // its error is CollectRows' too
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (auth.Token, error) { return scanToken(row) })
	return out, db.clean(err)
}
