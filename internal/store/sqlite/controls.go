package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"navra/internal/store"
)

// controlsQuery reads all of what operators have said in one statement, so that it is of one moment.
const controlsQuery = `SELECT key, value FROM kept WHERE key IN ('generation', 'controls')
	UNION ALL SELECT 'revoked', CAST(id AS BLOB) FROM tokens WHERE revoked <> 0`

// Controls implements store.Store.
func (db *DB) Controls(ctx context.Context) (c store.Controls, err error) {
	err = db.ask(ctx, controlsQuery, func(q *sql.Stmt) (err error) {
		c, err = scanControls(q.QueryContext(ctx))
		return err
	})
	return c, err
}

func scanControls(rows *sql.Rows, err error) (store.Controls, error) {
	if err != nil {
		return store.Controls{}, err
	}
	defer rows.Close()
	values := map[string][]byte{}
	var revoked []string
	for rows.Next() {
		var key string
		var value []byte
		if err := rows.Scan(&key, &value); err != nil {
			return store.Controls{}, err
		}
		if key == "revoked" {
			revoked = append(revoked, string(value))
		} else {
			values[key] = value
		}
	}
	if err := rows.Err(); err != nil {
		return store.Controls{}, err
	}
	c, err := store.ParseControls(values[store.KeptGeneration], values[store.KeptControls])
	for _, id := range revoked {
		c.Revoked[id] = true
	}
	return c, err
}

// Control implements store.Store. It waits for the head lock: what was judged before is committed before it, or refused after it.
// A token that was revoked before stays revoked as of then.
func (db *DB) Control(ctx context.Context, ch store.Change) (r store.Receipt, err error) {
	if db.group == nil {
		return r, errReadOnly
	}
	err = db.tx(ctx, func(tx *sql.Tx) error {
		if ch.Revoke != "" {
			res, err := tx.ExecContext(ctx, "UPDATE tokens SET revoked = CASE revoked WHEN 0 THEN ? ELSE revoked END WHERE id = ?", toMicro(db.now()), ch.Revoke)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, store.ErrNotFound)
			}
		}
		c, err := scanControls(tx.QueryContext(ctx, controlsQuery))
		if err != nil {
			return err
		}
		head, err := headOf(ctx, tx)
		if err != nil {
			return err
		}
		generation, controls, w, err := c.Next(ch, head, db.now())
		if err != nil {
			return err
		}
		for key, value := range map[string][]byte{store.KeptGeneration: generation, store.KeptControls: controls} {
			if _, err := tx.ExecContext(ctx, keepStatement, key, value); err != nil {
				return err
			}
		}
		r = store.Receipt{Seq: w.Seq, Hash: w.Hash}
		_, err = tx.ExecContext(ctx, groupStatements[insert], int64(w.Seq), w.Encoded, w.Hash[:], nil)
		return err
	})
	if err == nil && db.committed != nil {
		err = db.committed(r)
	}
	return r, err
}
