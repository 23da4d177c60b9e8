package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"navra/internal/auth"
	"navra/internal/scope"
	"navra/internal/store"
)

// AddPlaceholders implements store.Store.
func (db *DB) AddPlaceholders(ctx context.Context, id scope.ID, ps []scope.Placeholder) ([]scope.Placeholder, error) {
	out := slices.Clone(ps)
	err := db.tx(ctx, func(tx *sql.Tx) error {
		for i := range out {
			if err := addPlaceholder(ctx, tx, id, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("placeholders: %w", err)
	}
	return out, nil
}

func addPlaceholder(ctx context.Context, tx *sql.Tx, id scope.ID, p *scope.Placeholder) error {
	var objects string
	err := tx.QueryRowContext(ctx, "SELECT n, objects FROM placeholders WHERE scope = ? AND kind = ? AND tag = ?", id, p.Kind, p.Tag[:]).Scan(&p.N, &objects)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) + 1 FROM placeholders WHERE scope = ? AND kind = ?", id, p.Kind).Scan(&p.N); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		var had []scope.Object
		if err := json.Unmarshal([]byte(objects), &had); err != nil {
			return err
		}
		for _, o := range p.Objects {
			if !slices.Contains(had, o) {
				had = append(had, o)
			}
		}
		p.Objects = had
	}
	text, err := json.Marshal(p.Objects)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO placeholders (scope, kind, n, principal, tag, box, objects) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (scope, kind, n) DO UPDATE SET objects = excluded.objects`, id, p.Kind, p.N, p.Principal, p.Tag[:], p.Box, string(text))
	return err
}

// Kept implements store.Store.
func (db *DB) Kept(ctx context.Context, key string) (value []byte, err error) {
	err = db.ask(ctx, "SELECT value FROM kept WHERE key = ?", func(q *sql.Stmt) error { return q.QueryRowContext(ctx, key).Scan(&value) })
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	return value, err
}

const keepStatement = "INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

// Keep implements store.Store.
func (db *DB) Keep(ctx context.Context, key string, value []byte) error {
	return db.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, keepStatement, key, value)
		return err
	})
}

// Swap implements store.Store.
func (db *DB) Swap(ctx context.Context, key string, old, value []byte) (done bool, err error) {
	err = db.tx(ctx, func(tx *sql.Tx) error {
		query, args := "UPDATE kept SET value = ? WHERE key = ? AND value = ?", []any{value, key, old}
		if old == nil {
			query, args = "INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", []any{key, value}
		}
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		done = n == 1
		return err
	})
	return done && err == nil, err
}

// EndSession implements store.Store. Sessions that have expired since are dropped.
func (db *DB) EndSession(ctx context.Context, nonce string, expires time.Time) error {
	return db.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM sessions_ended WHERE expires < ?", db.now().UnixMicro()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO sessions_ended (nonce, expires) VALUES (?, ?)", nonce, expires.UnixMicro())
		return err
	})
}

// SessionEnded implements store.Store.
func (db *DB) SessionEnded(ctx context.Context, nonce string) (ended bool, err error) {
	err = db.ask(ctx, "SELECT EXISTS (SELECT 1 FROM sessions_ended WHERE nonce = ?)", func(q *sql.Stmt) error { return q.QueryRowContext(ctx, nonce).Scan(&ended) })
	return ended, err
}

const tokenColumns = "SELECT id, hash, principal, created, expires, revoked FROM tokens"

func scanToken(scan func(...any) error) (t auth.Token, err error) {
	var hash []byte
	var created, expires, revoked int64
	if err := scan(&t.ID, &hash, &t.Principal, &created, &expires, &revoked); err != nil {
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
	return db.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens (id, hash, principal, created, expires, revoked) VALUES (?, ?, ?, ?, ?, ?)",
			t.ID, t.Hash[:], t.Principal, toMicro(t.Created), toMicro(t.Expires), toMicro(t.Revoked))
		return err
	})
}

// TokenByHash implements store.Store.
func (db *DB) TokenByHash(ctx context.Context, hash [32]byte) (t auth.Token, err error) {
	err = db.ask(ctx, tokenColumns+" WHERE hash = ?", func(q *sql.Stmt) (err error) {
		t, err = scanToken(q.QueryRowContext(ctx, hash[:]).Scan)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return auth.Token{}, store.ErrNotFound
	}
	return t, err
}

// Tokens implements store.Store; the oldest first.
func (db *DB) Tokens(ctx context.Context) ([]auth.Token, error) {
	rows, err := db.read.QueryContext(ctx, tokenColumns+" ORDER BY created, id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []auth.Token
	for rows.Next() {
		t, err := scanToken(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}
