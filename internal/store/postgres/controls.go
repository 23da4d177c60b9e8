package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"navra/internal/store"
)

// controlsQuery reads all of what operators have said in one statement, so that it is of one moment.
const controlsQuery = `SELECT key, value FROM @kept WHERE key IN ('generation', 'controls')
	UNION ALL SELECT 'revoked', convert_to(id, 'UTF8') FROM @tokens WHERE revoked <> 0`

type rowsQueryer interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// Controls implements store.Store.
func (db *DB) Controls(ctx context.Context) (store.Controls, error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	c, err := db.controls(ctx, db.pool)
	return c, db.clean(err)
}

func (db *DB) controls(ctx context.Context, q rowsQueryer) (c store.Controls, err error) {
	rows, _ := q.Query(ctx, db.in(controlsQuery)) // its error is ForEachRow's too
	values := map[string][]byte{}
	var revoked []string
	var key string
	var value []byte
	if _, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		if key == "revoked" {
			revoked = append(revoked, string(value))
		} else {
			values[key] = value
		}
		value = nil
		return nil
	}); err != nil {
		return c, err
	}
	c, err = store.ParseControls(values[store.KeptGeneration], values[store.KeptControls])
	for _, id := range revoked {
		c.Revoked[id] = true
	}
	return c, err
}

// Control implements store.Store. It waits for the head lock: what was judged before is committed before it, or refused after it.
// A token that was revoked before stays revoked as of then.
func (db *DB) Control(ctx context.Context, ch store.Change) (r store.Receipt, err error) {
	var refused error // by Apply: nobody else's words
	err = db.tx(ctx, db.head(), func(tx pgx.Tx) error {
		if ch.Revoke != "" {
			tag, err := tx.Exec(ctx, db.in("UPDATE @tokens SET revoked = CASE revoked WHEN 0 THEN $1 ELSE revoked END WHERE id = $2"), toMicro(db.now()), ch.Revoke)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return store.ErrNotFound
			}
		}
		c, err := db.controls(ctx, tx)
		if err != nil {
			return err
		}
		head, err := db.headOf(ctx, tx)
		if err != nil {
			return err
		}
		generation, controls, w, err := c.Next(ch, head, db.now())
		if err != nil {
			refused = err
			return err
		}
		for key, value := range map[string][]byte{store.KeptGeneration: generation, store.KeptControls: controls} {
			if _, err := tx.Exec(ctx, db.in(keepStatement), key, value); err != nil {
				return err
			}
		}
		r = store.Receipt{Seq: w.Seq, Hash: w.Hash}
		_, err = tx.Exec(ctx, db.in("INSERT INTO @entries (seq, body, hash) VALUES ($1, $2, $3)"), int64(w.Seq), w.Encoded, w.Hash[:])
		return err
	})
	if refused != nil {
		return r, refused
	}
	if err == nil && db.committed != nil {
		err = db.committed(r)
	}
	return r, err
}
